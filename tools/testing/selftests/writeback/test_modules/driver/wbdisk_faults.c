// SPDX-License-Identifier: GPL-2.0
/* Which commands fail on purpose. */
#include <linux/string.h>
#include <linux/sysfs.h>

#include "wbdisk.h"

static const char *const op_names[] = {
	[WBD_READ] = "read",
	[WBD_WRITE] = "write",
	[WBD_FLUSH] = "flush",
	[WBD_OP_ANY] = "any",
};

static const char *const kind_names[] = {
	[WBD_FAULT_EIO] = "eio",
	[WBD_FAULT_TIMEOUT] = "timeout",
};

static bool op_matches(const struct wbd_fault *fault, const struct wbd_cmd *cmd)
{
	return fault->kind != WBD_FAULT_NONE &&
	       (fault->op == WBD_OP_ANY || fault->op == cmd->op);
}

/**
 * wbd_fault_match() - is this a command to fail?
 * @dev: locked
 * @cmd: a command that arrives; counted if it matches fail_nth
 * @bytes: of the range it is for, 0 for a flush
 *
 * Return: how it fails.
 */
enum wbd_fault_kind wbd_fault_match(struct wbd_dev *dev,
				    const struct wbd_cmd *cmd, u32 bytes)
{
	struct wbd_fault *nth = &dev->fail_nth;
	struct wbd_fault *range = &dev->fail_range;
	enum wbd_fault_kind kind;
	/* A flush has no place: it counts as the first sector. */
	u64 end = cmd->sector + max(bytes >> SECTOR_SHIFT, 1U);

	if (op_matches(nth, cmd) && !--nth->nth) {
		kind = nth->kind;
		nth->kind = WBD_FAULT_NONE;
		return kind;
	}
	if (op_matches(range, cmd) && cmd->sector < range->start + range->len &&
	    end > range->start)
		return range->kind;
	return WBD_FAULT_NONE;
}

/* Words of "OP ... [eio|timeout]": op and kind here, the numbers to the caller. */
static int parse(struct wbd_fault *fault, const char *op, const char *kind,
		 bool has_kind)
{
	int i;

	fault->kind = WBD_FAULT_EIO;
	if (has_kind) {
		i = match_string(kind_names + 1, ARRAY_SIZE(kind_names) - 1, kind);
		if (i < 0)
			return -EINVAL;
		fault->kind = i + 1;
	}
	for (i = 0; i < ARRAY_SIZE(op_names); i++) {
		if (op_names[i] && !strcmp(op_names[i], op)) {
			fault->op = i;
			return 0;
		}
	}
	return -EINVAL;
}

/**
 * wbd_fault_parse_range() - read "OP START LEN [eio|timeout]"
 * @fault: result
 * @text: OP is read, write, flush or any, numbers are sectors; "" for none
 *
 * A flush has no place and is matched if START is 0.
 *
 * Return: 0 or -EINVAL.
 */
int wbd_fault_parse_range(struct wbd_fault *fault, const char *text)
{
	char op[8], kind[8], extra;
	int n;

	memset(fault, 0, sizeof(*fault));
	if (!*skip_spaces(text))
		return 0;
	n = sscanf(text, "%7s %llu %llu %7s %c", op, &fault->start, &fault->len,
		   kind, &extra);
	if (n < 3 || n > 4 || !fault->len || fault->start + fault->len < fault->len)
		return -EINVAL;
	return parse(fault, op, kind, n == 4);
}

/**
 * wbd_fault_parse_nth() - read "OP N [eio|timeout]"
 * @fault: result
 * @text: the N-th matching command from now on fails, once; "" for none
 *
 * Return: 0 or -EINVAL.
 */
int wbd_fault_parse_nth(struct wbd_fault *fault, const char *text)
{
	char op[8], kind[8], extra;
	int n;

	memset(fault, 0, sizeof(*fault));
	if (!*skip_spaces(text))
		return 0;
	n = sscanf(text, "%7s %llu %7s %c", op, &fault->nth, kind, &extra);
	if (n < 2 || n > 3 || !fault->nth)
		return -EINVAL;
	return parse(fault, op, kind, n == 3);
}

/**
 * wbd_fault_show() - the text that would set this fault
 * @fault: what is left of it
 * @page: where to
 * @range: by place, else by number
 *
 * Return: length.
 */
ssize_t wbd_fault_show(const struct wbd_fault *fault, char *page, bool range)
{
	if (fault->kind == WBD_FAULT_NONE)
		return sysfs_emit(page, "\n");
	if (range)
		return sysfs_emit(page, "%s %llu %llu %s\n", op_names[fault->op],
				  fault->start, fault->len,
				  kind_names[fault->kind]);
	return sysfs_emit(page, "%s %llu %s\n", op_names[fault->op], fault->nth,
			  kind_names[fault->kind]);
}
