// SPDX-License-Identifier: GPL-2.0
/*
 * Writes blocks of known content into a file, and tells what became of them.
 *
 *	fs_blocks write|make FILE SEED FIRST COUNT STRIDE
 *	fs_blocks verify FILE SEED FIRST COUNT STRIDE
 *	fs_blocks truncate FILE SIZE
 *
 * Blocks are of 4096 bytes: number FIRST, FIRST + STRIDE, ..., COUNT of them.
 * Every 8 bytes of a block are a hash of SEED and their offset in the file.
 *
 * "write" writes each with a pwrite(2) of its own and then calls fsync(2); "make"
 * does not, and truncates the file first:
 *	written N	blocks for which pwrite said all was written
 *	write_errno N	of the first pwrite that failed, else 0
 *	fsync_errno N
 * "verify" reads the whole file:
 *	data N zero N stale N other N		the blocks that were to be written
 *	gap_zero N gap_stale N gap_other N	the blocks between and behind them
 * where stale is a block that has 8 bytes 0xAA somewhere, what the disk was filled
 * with before.
 * "truncate" is truncate(2), which does not open the file.
 *
 * Exit code 0, 1 with one line on standard error if the file cannot be opened or
 * truncated, 2 on bad usage.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/types.h>

#include "../../kselftest.h"

#define BLOCK	4096
#define WORDS	(BLOCK / 8)
#define STALE	0xaaaaaaaaaaaaaaaaULL

/* The finalizer of splitmix64. */
static __u64 mix(__u64 x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static void fill(__u64 *buf, __u64 seed, __u64 block)
{
	__u64 key = mix(seed) + block * WORDS;
	int i;

	for (i = 0; i < WORDS; i++)
		buf[i] = mix(key + i);
}

enum kind { DATA, ZERO, OLD, OTHER, KINDS };

static enum kind classify(const __u64 *buf, const __u64 *expect)
{
	int i, zero = 1;

	if (!memcmp(buf, expect, BLOCK))
		return DATA;
	for (i = 0; i < WORDS; i++) {
		if (buf[i] == STALE)
			return OLD;
		zero &= !buf[i];
	}
	return zero ? ZERO : OTHER;
}

static int do_write(int fd, __u64 seed, __u64 first, __u64 count, __u64 stride,
		    int sync)
{
	__u64 buf[WORDS], i, written = 0;
	int err = 0, sync_err;
	ssize_t n;

	for (i = 0; i < count; i++) {
		fill(buf, seed, first + i * stride);
		n = pwrite(fd, buf, BLOCK, (first + i * stride) * BLOCK);
		if (n == BLOCK)
			written++;
		else if (!err)
			err = n < 0 ? errno : EIO;
	}
	sync_err = sync && fsync(fd) ? errno : 0;
	printf("written %llu\nwrite_errno %d\nfsync_errno %d\n",
	       written, err, sync_err);
	return 0;
}

static int do_verify(int fd, __u64 seed, __u64 first, __u64 count, __u64 stride)
{
	static const char * const names[] = { "data", "zero", "stale", "other" };
	__u64 buf[WORDS], expect[WORDS], block, found[2][KINDS] = { 0 };
	ssize_t n;
	int k;

	for (block = 0; (n = pread(fd, buf, BLOCK, block * BLOCK)) > 0; block++) {
		int gap = block < first || (block - first) % stride ||
			  (block - first) / stride >= count;

		memset((char *)buf + n, 0, BLOCK - n);
		fill(expect, seed, block);
		found[gap][classify(buf, expect)]++;
	}
	if (n < 0) {
		fprintf(stderr, "fs_blocks: block %llu: %s\n", block, strerror(errno));
		return 1;
	}
	for (k = 0; k < KINDS; k++)
		printf("%s %llu\n", names[k], found[0][k]);
	found[1][OTHER] += found[1][DATA];
	for (k = ZERO; k < KINDS; k++)
		printf("gap_%s %llu\n", names[k], found[1][k]);
	return 0;
}

int main(int argc, char **argv)
{
	__u64 arg[4];
	char *end;
	int i, fd, writes;

	if (argc == 4 && !strcmp(argv[1], "truncate")) {
		arg[0] = strtoull(argv[3], &end, 10);
		if (*end || end == argv[3])
			goto usage;
		if (!truncate(argv[2], arg[0]))
			return 0;
		fprintf(stderr, "fs_blocks: %s: %s\n", argv[2], strerror(errno));
		return 1;
	}
	if (argc != 7 || (strcmp(argv[1], "write") && strcmp(argv[1], "make") &&
			  strcmp(argv[1], "verify")))
		goto usage;
	for (i = 0; i < 4; i++) {
		arg[i] = strtoull(argv[3 + i], &end, 10);
		if (*end || end == argv[3 + i])
			goto usage;
	}
	if (!arg[3])
		goto usage;
	writes = argv[1][0] != 'v';
	fd = open(argv[2], !writes ? O_RDONLY :
		  O_WRONLY | O_CREAT | (argv[1][0] == 'm' ? O_TRUNC : 0), 0644);
	if (fd < 0) {
		fprintf(stderr, "fs_blocks: %s: %s\n", argv[2], strerror(errno));
		return 1;
	}
	return writes ? do_write(fd, arg[0], arg[1], arg[2], arg[3],
				 argv[1][0] == 'w') :
			do_verify(fd, arg[0], arg[1], arg[2], arg[3]);
usage:
	fprintf(stderr, "usage: fs_blocks write|make|verify FILE SEED FIRST COUNT STRIDE\n"
		"       fs_blocks truncate FILE SIZE\n");
	return 2;
}
