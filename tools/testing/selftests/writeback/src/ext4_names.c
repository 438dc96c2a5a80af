// SPDX-License-Identifier: GPL-2.0
/*
 * Random changes of names and of files until the power is cut, and what is left of them.
 *
 *	ext4_names run DIR LOG DISK SEED MS EXTENTS
 *	ext4_names check DIR LOG
 *
 * run: one task creates, links, renames, exchanges and removes files, symbolic links,
 * fifos and directories below DIR; it writes to them, also with O_DIRECT, truncates,
 * preallocates, punches and shifts them, with a name, without one any more, and before
 * they get one (O_TMPFILE), gives them an attribute, and syncs some.  A second one syncs,
 * sends data to the disk, drops caches, and lets the disk, a wbdisk with its attributes
 * below DISK, stand still meanwhile.  After MS milliseconds at most the power of DISK is
 * cut.  Ranges are neither preallocated, zeroed nor shifted if EXTENTS is 0: without
 * extents that fails.  LOG, a file that must outlive the cut, says what was done.
 *
 * check: the names below DIR are those after one of the changes, not before the last that a
 * sync has acknowledged, and in no other order; files hold what was written to them at some
 * time or zeros, and those that were not changed since they were synced, exactly that.
 *
 * Prints "changes N acks N bytes N" and exits 0; 1 with a line for what is wrong; 2 on bad
 * usage.  run prints each change to standard error if the environment has NAMES_TRACE.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/types.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "../../kselftest.h"
#include "rnd.h"

#define DIRS		4		/* the first is DIR itself */
#define NAMES		6		/* in each of them */
#define UNIT		1024
#define UNITS		64		/* of a file */
#define BLOCK_UNITS	4		/* what can be shifted, whatever the size of a block */
#define HELD		4		/* files that are open */
#define MAX_CHANGES	20000
#define MAX_OBJECTS	8192
#define WHITEOUT	~0U		/* instead of an object */
#define MAX_STALL_MS	300
#define MAX_PAUSE_US	3000
#define LONG_PAUSE_US	1500000		/* longer than between commits */

/* Who made an object is its number: it is known by that after the cut. */
struct object {
	__u32 size;			/* bytes */
	__u32 version;			/* of the last write */
	__u32 last;			/* change after which its inode was changed last */
	__u32 exact;			/* not changed since it was synced */
	__u32 unit[UNITS];		/* version, or 0: a hole */
};

struct state {
	__u32 dir[DIRS], name[DIRS][NAMES];
};

static struct log {
	__u32 done, begun, acked, objects, cut, acks;
	struct object object[MAX_OBJECTS];
	struct state state[MAX_CHANGES + 1];
} *log_;

static const char *top, *disk;
static int root, tracing;
static const int modes[] = {
	FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
	FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
	FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE, 0
};

static int allowed[ARRAY_SIZE(modes)], flags_allowed;
static int held[HELD];			/* file descriptors, or -1 */
static __u32 held_id[HELD];
static __u64 *buf;			/* of a whole file, aligned for O_DIRECT */
static unsigned long long bytes;

static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	exit(1);
}

static void trace(const char *fmt, ...)
{
	va_list ap;

	if (!tracing)
		return;
	fprintf(stderr, "%u: ", log_->done);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
}

/* Path of a directory, or of a name in it. */
static const char *path(int d, int n)
{
	static char paths[4][4096];
	static int next;
	char *p = paths[next++ % 4];

	if (!d && n < 0)
		snprintf(p, sizeof(paths[0]), "%s", top);
	else if (n < 0)
		snprintf(p, sizeof(paths[0]), "%s/d%d", top, d);
	else if (!d)
		snprintf(p, sizeof(paths[0]), "%s/n%d", top, n);
	else
		snprintf(p, sizeof(paths[0]), "%s/d%d/n%d", top, d, n);
	return p;
}

static void put(const char *attribute, const char *value)
{
	char p[4096];
	int fd;

	if (attribute[0] == '/')
		snprintf(p, sizeof(p), "%s", attribute);
	else
		snprintf(p, sizeof(p), "%s/%s", disk, attribute);
	fd = open(p, O_WRONLY);
	if (fd < 0 || write(fd, value, strlen(value)) != (ssize_t)strlen(value))
		die("%s: %s", p, strerror(errno));
	close(fd);
}

/* ---- the change that is made ------------------------------------------------- */

static struct state *now(void)
{
	return &log_->state[log_->done];
}

/* What will be: to be changed before it is done, as the cut may come after that. */
static struct state *begin(void)
{
	struct state *next = &log_->state[log_->done + 1];

	*next = *now();
	return next;
}

/* Of an operation that failed: only the cut may be why. */
static void failed(const char *what)
{
	int error = errno;

	if (log_->cut)
		exit(0);
	die("change %u: %s: %s", log_->done, what, strerror(error));
}

static void doing(void)
{
	__atomic_store_n(&log_->begun, log_->done + 1, __ATOMIC_SEQ_CST);
}

static void done(int ret, const char *what)
{
	if (ret < 0)
		failed(what);
	if (log_->cut)
		exit(0);
	log_->done++;
}

static __u32 new_object(void)
{
	if (log_->objects + 1 >= MAX_OBJECTS)
		return 0;
	return ++log_->objects;
}

static struct object *object(__u32 id)
{
	return &log_->object[id];
}

/* Its inode has changed in this change, or after it. */
static void touched(__u32 id)
{
	if (id && id != WHITEOUT)
		object(id)->last = log_->done;
}

static void acked(__u32 change)
{
	/* What returns 0 after the cut says nothing. */
	if (log_->cut)
		exit(0);
	log_->acks++;
	if (change > log_->acked)
		log_->acked = change;
}

/* ---- choices ----------------------------------------------------------------- */

static int any_dir(void)
{
	int d = rnd(DIRS);

	return d && !now()->dir[d] ? 0 : d;
}

/* A name that is there, or, if not "used", one that is free.  Returns 0 without any. */
static int any_name(int used, int *d, int *n)
{
	int i, at = rnd(DIRS * NAMES);

	for (i = 0; i < DIRS * NAMES; i++, at = (at + 1) % (DIRS * NAMES)) {
		*d = at / NAMES;
		*n = at % NAMES;
		if ((!*d || now()->dir[*d]) && !now()->name[*d][*n] == !used)
			return 1;
	}
	return 0;
}

static int is_empty(int d)
{
	int n;

	for (n = 0; n < NAMES; n++)
		if (now()->name[d][n])
			return 0;
	return 1;
}

/* Opens a file that is held, or one by its name; -1 if it is none, or without any. */
static int any_file(int flags, __u32 *id)
{
	struct stat st;
	int d, n, fd;

	n = rnd(2 * HELD);
	if (n < HELD && held[n] >= 0) {
		*id = held_id[n];
		return dup(held[n]);
	}
	if (!any_name(1, &d, &n) || now()->name[d][n] == WHITEOUT)
		return -1;
	if (lstat(path(d, n), &st))
		failed("lstat");
	if (!S_ISREG(st.st_mode))
		return -1;
	*id = now()->name[d][n];
	fd = open(path(d, n), flags);
	if (fd < 0)
		failed("open");
	return fd;
}

/* ---- content ----------------------------------------------------------------- */

static __u64 word(__u32 id, __u32 version)
{
	return version ? (__u64)id << 32 | version : 0;
}

static void cut_off(struct object *o, __u32 size)
{
	__u32 u;

	for (u = (size + UNIT - 1) / UNIT; u < UNITS; u++)
		o->unit[u] = 0;
	o->size = size;
}

static void fill(int fd, __u32 id, int direct)
{
	struct object *o = object(id);
	__u32 at = rnd(UNITS), n = 1 + rnd(1 << rnd(6)), i;
	int flags = fcntl(fd, F_GETFL);

	if (n > UNITS - at)
		n = UNITS - at;
	trace("write %u: %u of %u%s", id, n, at, direct ? ", O_DIRECT" : "");
	o->exact = 0;
	o->version++;
	for (i = 0; i < n * UNIT / 8; i++)
		buf[i] = word(id, o->version);
	if (direct && fcntl(fd, F_SETFL, flags | O_DIRECT))
		failed("O_DIRECT");
	if (pwrite(fd, buf, n * UNIT, at * UNIT) != (ssize_t)(n * UNIT))
		failed("write");
	if (direct)
		fcntl(fd, F_SETFL, flags);
	for (i = 0; i < n; i++)
		o->unit[at + i] = o->version;
	if (o->size < (at + n) * UNIT)
		o->size = (at + n) * UNIT;
}

static void do_write(void)
{
	__u32 id;
	int fd = any_file(O_RDWR, &id);

	if (fd < 0)
		return;
	fill(fd, id, !rnd(3));
	close(fd);
}

static void do_truncate(void)
{
	__u32 id, size = rnd(UNITS) * UNIT;
	int fd = any_file(O_RDWR, &id);

	if (fd < 0)
		return;
	if (!rnd(4))
		size = object(id)->size;	/* what is behind that goes */
	trace("truncate %u: %u", id, size);
	object(id)->exact = 0;
	if (ftruncate(fd, size))
		failed("truncate");
	cut_off(object(id), size);
	close(fd);
}

static void do_allocate(void)
{
	int mode = rnd(ARRAY_SIZE(modes)), fd;
	__u32 id, at = rnd(UNITS), n = 1 + rnd(UNITS / 2), u;
	struct object *o;

	if (!allowed[mode])
		return;
	mode = modes[mode];
	fd = any_file(O_RDWR, &id);
	if (fd < 0)
		return;
	o = object(id);
	if (mode == FALLOC_FL_COLLAPSE_RANGE || mode == FALLOC_FL_INSERT_RANGE) {
		at -= at % BLOCK_UNITS;
		n = BLOCK_UNITS;
	}
	if (n > UNITS - at)
		n = UNITS - at;
	if ((mode == FALLOC_FL_COLLAPSE_RANGE && (at + n) * UNIT >= o->size) ||
	    (mode == FALLOC_FL_INSERT_RANGE &&
	     (at * UNIT >= o->size || o->size + n * UNIT > UNITS * UNIT)))
		goto out;
	trace("fallocate %u: mode %d, %u of %u", id, mode, n, at);
	o->exact = 0;
	if (fallocate(fd, mode, at * UNIT, n * UNIT))
		failed("fallocate");
	switch (mode) {
	case FALLOC_FL_COLLAPSE_RANGE:
		for (u = at; u < UNITS; u++)
			o->unit[u] = u + n < UNITS ? o->unit[u + n] : 0;
		o->size -= n * UNIT;
		break;
	case FALLOC_FL_INSERT_RANGE:
		for (u = UNITS; u-- > at; )
			o->unit[u] = u >= at + n ? o->unit[u - n] : 0;
		o->size += n * UNIT;
		break;
	case 0:
		if (o->size < (at + n) * UNIT)
			o->size = (at + n) * UNIT;
		break;
	case FALLOC_FL_KEEP_SIZE:
		break;
	default:
		for (u = at; u < at + n; u++)
			o->unit[u] = 0;
	}
out:
	close(fd);
}

/* Its number: no other file may have that. */
static void do_attribute(void)
{
	static const char more[400];
	__u32 id;
	int fd = any_file(O_RDWR, &id);

	if (fd < 0)
		return;
	trace("attribute %u", id);
	/* The second does not fit into the inode. */
	if (fsetxattr(fd, "user.id", &id, sizeof(id), 0) ||
	    (!rnd(4) && fsetxattr(fd, "user.more", more, sizeof(more), 0)))
		failed("setxattr");
	touched(id);
	close(fd);
}

/* ---- sync -------------------------------------------------------------------- */

static void do_fsync(void)
{
	__u32 id, data = rnd(3) == 0;
	struct stat st;
	int fd = any_file(O_RDWR, &id);

	if (fd < 0)
		return;
	if (rnd(2)) {
		if (fstat(fd, &st) || fchmod(fd, st.st_mode ^ 0100))
			failed("chmod");
		touched(id);
	}
	trace("%s %u", data ? "fdatasync" : "fsync", id);
	if (data ? fdatasync(fd) : fsync(fd))
		failed("fsync");
	/* fdatasync() need not wait for a name, nor for a mode. */
	acked(data ? 0 : object(id)->last);
	object(id)->exact = 1;
	close(fd);
}

static void do_fsync_dir(void)
{
	int d = any_dir(), fd = open(path(d, -1), O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		failed("open");
	trace("fsync d%d", d);
	if (fsync(fd))
		failed("fsync");
	acked(object(now()->dir[d])->last);
	close(fd);
}

static void do_syncfs(void)
{
	__u32 i;

	trace("syncfs");
	if (syncfs(root))
		failed("syncfs");
	acked(log_->done);
	for (i = 1; i <= log_->objects; i++)
		object(i)->exact = 1;
}

/* ---- names ------------------------------------------------------------------- */

static void hold(int fd, __u32 id)
{
	int i = rnd(HELD);

	if (held[i] >= 0)
		close(held[i]);
	held[i] = fd;
	held_id[i] = id;
}

static void do_release(void)
{
	int i = rnd(HELD);

	if (held[i] < 0)
		return;
	trace("close %u", held_id[i]);
	close(held[i]);
	held[i] = -1;
}

static void do_hold(void)
{
	__u32 id;
	int fd = any_file(O_RDWR, &id);

	if (fd >= 0)
		hold(fd, id);
}

static void do_create(void)
{
	__u32 id, kind = rnd(6);
	int d, n, ret;

	if (!any_name(0, &d, &n))
		return;
	id = new_object();
	if (!id)
		return;
	begin()->name[d][n] = id;
	trace("create %u: d%d n%d, kind %u", id, d, n, kind);
	setfsuid(id);
	doing();
	if (kind == 0) {
		memset(buf, 'l', 100);
		((char *)buf)[rnd(2) ? 20 : 100] = 0;	/* in the inode or not */
		ret = symlink((char *)buf, path(d, n));
	} else if (kind == 1) {
		ret = mknod(path(d, n), S_IFIFO | 0666, 0);
	} else {
		ret = open(path(d, n), O_RDWR | O_CREAT | O_EXCL, 0666);
	}
	setfsuid(0);
	done(ret, "create");
	touched(id);
	touched(now()->dir[d]);
	if (kind < 2)
		return;
	if (rnd(2))
		fill(ret, id, !rnd(3));
	if (rnd(4))
		close(ret);
	else
		hold(ret, id);
}

/* A file that may get a name, or not. */
static void do_tmpfile(void)
{
	int d = any_dir(), n, fd;
	__u32 id = new_object();

	if (!id)
		return;
	trace("tmpfile %u: d%d", id, d);
	setfsuid(id);
	fd = open(path(d, -1), O_RDWR | O_TMPFILE, 0666);
	setfsuid(0);
	if (fd < 0)
		failed("O_TMPFILE");
	touched(id);
	if (rnd(2))
		fill(fd, id, !rnd(3));
	if (!rnd(3) && fsync(fd))
		failed("fsync");
	if (!rnd(3))
		do_syncfs();
	if (rnd(4) && any_name(0, &d, &n)) {
		begin()->name[d][n] = id;
		trace("first link %u: d%d n%d", id, d, n);
		doing();
		done(linkat(fd, "", AT_FDCWD, path(d, n), AT_EMPTY_PATH), "linkat");
		touched(id);
		touched(now()->dir[d]);
	}
	hold(fd, id);
}

static void do_link(void)
{
	int d, n, e, m;
	__u32 id;

	if (!any_name(1, &d, &n) || !any_name(0, &e, &m) || now()->name[d][n] == WHITEOUT)
		return;
	id = begin()->name[e][m] = now()->name[d][n];
	trace("link %u: d%d n%d", id, e, m);
	doing();
	done(link(path(d, n), path(e, m)), "link");
	touched(id);
	touched(now()->dir[e]);
}

static void do_unlink(void)
{
	int d, n;
	__u32 id;

	if (!any_name(1, &d, &n))
		return;
	id = now()->name[d][n];
	begin()->name[d][n] = 0;
	trace("unlink %u: d%d n%d", id, d, n);
	doing();
	done(unlink(path(d, n)), "unlink");
	touched(id);
	touched(now()->dir[d]);
}

/* Over what is there, to a free name, in exchange, or with a whiteout left behind. */
static void do_rename(void)
{
	int d, n, e, m, flags = 0;
	__u32 id, other;
	struct state *next;

	if (!any_name(1, &d, &n) || !any_name(rnd(3), &e, &m))
		return;
	id = now()->name[d][n];
	other = now()->name[e][m];
	/* Names of one inode: nothing is done. */
	if (id == other)
		return;
	if (flags_allowed && other && !rnd(3))
		flags = RENAME_EXCHANGE;
	else if (flags_allowed && !rnd(8))
		flags = RENAME_WHITEOUT;
	next = begin();
	next->name[d][n] = flags == RENAME_EXCHANGE ? other : flags ? WHITEOUT : 0;
	next->name[e][m] = id;
	trace("rename %u: d%d n%d to d%d n%d, flags %d", id, d, n, e, m, flags);
	doing();
	done(renameat2(AT_FDCWD, path(d, n), AT_FDCWD, path(e, m), flags), "rename");
	touched(id);
	touched(other);
	touched(now()->dir[d]);
	touched(now()->dir[e]);
}

static void do_mkdir(void)
{
	int d = 1 + rnd(DIRS - 1), ret;
	__u32 id;

	if (now()->dir[d])
		return;
	id = new_object();
	if (!id)
		return;
	begin()->dir[d] = id;
	trace("mkdir %u: d%d", id, d);
	setfsuid(id);
	doing();
	ret = mkdir(path(d, -1), 0777);
	setfsuid(0);
	done(ret, "mkdir");
	touched(id);
	touched(now()->dir[0]);
}

/* Or it is renamed, over one that is empty, too. */
static void do_rmdir(void)
{
	int d = 1 + rnd(DIRS - 1), e = 1 + rnd(DIRS - 1);
	struct state *next;

	if (!now()->dir[d])
		return;
	next = begin();
	if (e != d && is_empty(e) && rnd(2)) {
		trace("rename d%d to d%d", d, e);
		next->dir[e] = now()->dir[d];
		memcpy(next->name[e], now()->name[d], sizeof(next->name[e]));
		next->dir[d] = 0;
		memset(next->name[d], 0, sizeof(next->name[d]));
		doing();
		done(rename(path(d, -1), path(e, -1)), "rename");
		touched(now()->dir[e]);
	} else if (is_empty(d)) {
		trace("rmdir d%d", d);
		next->dir[d] = 0;
		doing();
		done(rmdir(path(d, -1)), "rmdir");
	}
	touched(now()->dir[0]);
}

static void do_pause(void)
{
	usleep(rnd(rnd(20) ? MAX_PAUSE_US : LONG_PAUSE_US));
}

/* The first are always there. */
#define ALWAYS	2
static struct { void (*change)(void); unsigned int share; } changes[] = {
	{ do_create, 6 }, { do_fsync, 10 },
	{ do_tmpfile, 3 }, { do_link, 3 }, { do_unlink, 5 }, { do_rename, 5 },
	{ do_mkdir, 1 }, { do_rmdir, 1 }, { do_write, 8 }, { do_truncate, 4 }, { do_allocate, 4 },
	{ do_attribute, 1 }, { do_hold, 2 }, { do_release, 2 }, { do_fsync_dir, 2 },
	{ do_syncfs, 1 }, { do_pause, 4 },
};

/* Each of the others with a chance of a half: many would hide what few can do. */
static void choose(int extents)
{
	unsigned int i;

	for (i = ALWAYS; i < ARRAY_SIZE(changes); i++)
		if (rnd(2))
			changes[i].share = 0;
	for (i = 0; i < ARRAY_SIZE(modes); i++)
		allowed[i] = rnd(2) && (extents || modes[i] & FALLOC_FL_PUNCH_HOLE);
	flags_allowed = rnd(2);
}

static void change(void)
{
	unsigned int i, sum = 0, at;

	for (i = 0; i < ARRAY_SIZE(changes); i++)
		sum += changes[i].share;
	at = rnd(sum);
	for (i = 0; at >= changes[i].share; i++)
		at -= changes[i].share;
	changes[i].change();
}

/* ---- beside it --------------------------------------------------------------- */

static void beside(void)
{
	int fd, d, n, kinds = 1 + rnd(6);
	char value[16];

	for (;;) {
		usleep(rnd(4 * MAX_PAUSE_US));
		switch (rnd(kinds)) {
		case 0:
			snprintf(value, sizeof(value), "%u", 1 + (unsigned int)rnd(MAX_STALL_MS));
			put("stall_ms", value);
			usleep(atoi(value) * 1000);
			break;
		case 1:
			fd = openat(root, "other", O_RDWR | O_CREAT, 0666);
			fchmod(fd, 0600 | rnd(0200));
			fsync(fd);
			close(fd);
			break;
		case 4:
			syncfs(root);
			break;
		case 5:
			put("/proc/sys/vm/drop_caches", rnd(2) ? "2" : "3");
			break;
		default:
			if (!any_name(1, &d, &n))
				break;
			fd = open(path(d, n), O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
			sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
			close(fd);
			break;
		}
	}
}

static void cut(unsigned long ms)
{
	usleep(1000 * (ms / 4 + rnd(ms - ms / 4)));
	__atomic_store_n(&log_->cut, 1, __ATOMIC_SEQ_CST);
	put("cut", "1");
	exit(0);
}

static void run(unsigned long seed, unsigned long ms, int extents)
{
	pid_t helper, cutter;
	int status, i;

	umask(0);
	if (chmod(top, 0777))
		die("%s: %s", top, strerror(errno));
	for (i = 0; i < HELD; i++)
		held[i] = -1;
	cutter = fork();
	if (!cutter) {
		rnd_seed(3 * seed + 1);
		cut(ms);
	}
	helper = fork();
	if (!helper) {
		rnd_seed(3 * seed + 2);
		beside();
	}
	if (!fork()) {
		rnd_seed(3 * seed);
		choose(extents);
		while (!log_->cut && log_->done < MAX_CHANGES)
			change();
		exit(0);
	}
	status = 0;
	for (i = 0; i < 2; i++) {
		int s;

		/* The helper has no end. */
		while (waitpid(-1, &s, 0) == helper)
			die("the task beside it ended");
		status |= s;
	}
	kill(helper, SIGKILL);
	waitpid(helper, NULL, 0);
	put("stall_ms", "0");
	if (status)
		exit(1);
}

/* ---- after the cut ----------------------------------------------------------- */

static void content(const char *file, __u32 id)
{
	struct object *o = object(id);
	__u32 size, i, version, owner;
	ssize_t len;
	int fd;

	fd = open(file, O_RDONLY);
	len = fd < 0 ? -1 : pread(fd, buf, UNITS * UNIT, 0);
	if (len < 0)
		die("%s: %s", file, strerror(errno));
	if (fgetxattr(fd, "user.id", &owner, sizeof(owner)) == sizeof(owner) && owner != id)
		die("%s, object %u: the attribute of %u", file, id, owner);
	close(fd);
	size = len;
	bytes += size;
	if (o->exact && size != o->size)
		die("%s, object %u: %u bytes, %u were synced", file, id, size, o->size);
	for (i = 0; i < size / 8; i++) {
		version = o->unit[i * 8 / UNIT];
		if (o->exact ? buf[i] != word(id, version) :
		    buf[i] && (buf[i] >> 32 != id || (__u32)buf[i] > o->version))
			die("%s, object %u, byte %u: %016llx, of %s version %u", file, id, i * 8,
			    (unsigned long long)buf[i], o->exact ? "synced" : "at most",
			    o->exact ? version : o->version);
	}
}

static void differences(const struct state *a, const struct state *b, const char *what)
{
	int d, n;

	for (d = 0; d < DIRS; d++) {
		if (a->dir[d] != b->dir[d])
			printf("d%d: object %u, %s %u\n", d, a->dir[d], what, b->dir[d]);
		for (n = 0; n < NAMES; n++)
			if (a->name[d][n] != b->name[d][n])
				printf("d%d n%d: object %u, %s %u\n", d, n, a->name[d][n], what,
				       b->name[d][n]);
	}
}

static void check(void)
{
	struct state is = { 0 };
	struct stat st;
	__u32 k;
	int d, n;

	for (d = 0; d < DIRS; d++) {
		if (d && !lstat(path(d, -1), &st))
			is.dir[d] = st.st_uid;
		if (d && !is.dir[d])
			continue;
		for (n = 0; n < NAMES; n++)
			if (!lstat(path(d, n), &st))
				is.name[d][n] = S_ISCHR(st.st_mode) ? WHITEOUT : st.st_uid;
			else if (errno != ENOENT)
				die("%s: %s", path(d, n), strerror(errno));
	}
	/* The last one that was begun may be half done in memory only. */
	for (k = log_->begun; k > log_->acked; k--)
		if (!memcmp(&is, &log_->state[k], sizeof(is)))
			break;
	if (memcmp(&is, &log_->state[k], sizeof(is))) {
		differences(&is, &log_->state[log_->acked], "acknowledged");
		differences(&is, &log_->state[log_->begun], "at last");
		die("names of no time between change %u and %u", log_->acked, log_->begun);
	}
	for (d = 0; d < DIRS; d++)
		for (n = 0; n < NAMES; n++)
			if (is.name[d][n] && is.name[d][n] != WHITEOUT &&
			    !lstat(path(d, n), &st) && S_ISREG(st.st_mode))
				content(path(d, n), is.name[d][n]);
}

int main(int argc, char **argv)
{
	int running = argc == 8 && !strcmp(argv[1], "run"), fd;

	if (!running && (argc != 4 || strcmp(argv[1], "check"))) {
		fprintf(stderr, "usage: ext4_names run DIR LOG DISK SEED MS EXTENTS\n"
				"       ext4_names check DIR LOG\n");
		return 2;
	}
	buf = aligned_alloc(4096, UNITS * UNIT);
	if (!buf)
		die("no memory");
	top = argv[2];
	tracing = !!getenv("NAMES_TRACE");
	root = open(top, O_RDONLY | O_DIRECTORY);
	fd = open(argv[3], O_RDWR | (running ? O_CREAT | O_TRUNC : 0), 0600);
	if (root < 0 || fd < 0 || (running && ftruncate(fd, sizeof(*log_))))
		die("%s: %s", argv[root < 0 ? 2 : 3], strerror(errno));
	log_ = mmap(NULL, sizeof(*log_), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (log_ == MAP_FAILED)
		die("%s: %s", argv[3], strerror(errno));
	if (running) {
		disk = argv[4];
		run(strtoul(argv[5], NULL, 10), strtoul(argv[6], NULL, 10), atoi(argv[7]));
	} else {
		check();
	}
	printf("changes %u acks %u bytes %llu\n", log_->done, log_->acks, bytes);
	return 0;
}
