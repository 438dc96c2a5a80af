// SPDX-License-Identifier: GPL-2.0
/*
 * Changes the rules of an ext4 file system while others work on it.
 *
 *	ext4_torture DIR DEVICE DISK SEED MS NOT OPTIONS...
 *
 * For MS milliseconds, at random: DIR is remounted with one of OPTIONS; the disk,
 * a wbdisk with its attributes below DISK, stalls for up to 3 s, at other times it
 * answers at once; the file system is frozen and thawed; caches are dropped; files
 * of DIR are defragmented (EXT4_IOC_MOVE_EXT), asked for their blocks (FIBMAP),
 * read, and sent to the disk; a file is swapped to; quotas are turned off and on;
 * most of the free space is taken and given back, or all of it, the reserve of the
 * file system included; it grows, if the disk is larger; memory is reclaimed; what is
 * free is trimmed.  Each of these is tried once, and then at random, but the one that NOT
 * names, as what is printed does; "" names none.
 *
 * Prints, for each of these, how often it was tried and how often it worked, which
 * it need not, and why if it never did.  Exits 0 with the file system thawed and the
 * disk awake; 1 if that fails, 2 on bad usage.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/fs.h>
#include <linux/types.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/swap.h>
#include <sys/wait.h>

#include "../../kselftest.h"
#include "rnd.h"

#define MAX_PAUSE_US	20000
#define MAX_STALL_MS	3000
#define MAX_FROZEN_US	100000
#define MAX_FULL_US	200000
#define GROW_BYTES	(8 << 20)
#define SWAP_PAGES	64
#define PATH		4096
#define RECLAIM		"/sys/fs/cgroup/memory.reclaim"

/* fs/ext4/ext4.h */
struct move_extent {
	__u32 reserved, donor_fd;
	__u64 orig_start, donor_start, len, moved_len;
};

#define EXT4_IOC_MOVE_EXT	_IOWR('f', 15, struct move_extent)
#define EXT4_IOC_RESIZE_FS	_IOW('f', 16, __u64)
/* Of the superblock: where it is, and in it. */
#define SB_OFFSET		1024
#define SB_BLOCKS		0x4
#define SB_LOG_BLOCK_SIZE	0x18

static const char *dir, *device, *disk, *not;
static char **options;
static int nr_options, root;
static struct timespec end;

static void pause_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

static int over(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec > end.tv_sec ||
	       (now.tv_sec == end.tv_sec && now.tv_nsec >= end.tv_nsec);
}

/* Returns 0 if all of the value was taken. */
static int put(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY), ret;

	if (fd < 0)
		return -1;
	ret = write(fd, value, strlen(value)) == (ssize_t)strlen(value) ? 0 : -1;
	return close(fd) || ret ? -1 : 0;
}

static int stall(long ms)
{
	char path[PATH], value[32];

	snprintf(path, sizeof(path), "%s/stall_ms", disk);
	snprintf(value, sizeof(value), "%ld", ms);
	return put(path, value);
}

/* One of the files below DIR, -1 without any. */
static int any_file(int flags)
{
	char path[PATH];
	struct dirent *e;
	int n = 0, fd = -1;
	DIR *d = opendir(dir);

	path[0] = 0;
	while (d && (e = readdir(d)))
		if (e->d_name[0] == 'f' && !rnd(++n))
			snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
	if (d)
		closedir(d);
	if (path[0])
		fd = open(path, flags);
	return fd;
}

static int do_remount(void)
{
	return mount(NULL, dir, NULL, MS_REMOUNT, options[rnd(nr_options)]);
}

/* Times of all magnitudes; then the disk has as long to get on. */
static int do_stall(void)
{
	long ms = 1 + rnd(2UL << rnd(12));

	if (ms > MAX_STALL_MS)
		ms = MAX_STALL_MS;
	if (stall(ms))
		return -1;
	pause_us(ms * 1000 + rnd(2 * MAX_PAUSE_US));
	return 0;
}

static int do_freeze(void)
{
	if (ioctl(root, FIFREEZE, 0))
		return -1;
	pause_us(rnd(MAX_FROZEN_US));
	return ioctl(root, FITHAW, 0);
}

static int do_drop(void)
{
	return put("/proc/sys/vm/drop_caches", rnd(2) ? "1" : "3");
}

static int do_move(void)
{
	struct move_extent move = { 0 };
	char path[PATH];
	struct stat st;
	int fd, donor, ret = -1;

	fd = any_file(O_RDWR);
	if (fd < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/donor", dir);
	donor = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (donor >= 0 && !fstat(fd, &st) && st.st_size &&
	    !fallocate(donor, 0, 0, st.st_size)) {
		move.donor_fd = donor;
		move.len = 1 + rnd((st.st_size + st.st_blksize - 1) / st.st_blksize);
		ret = ioctl(fd, EXT4_IOC_MOVE_EXT, &move);
	}
	unlink(path);
	close(donor);
	close(fd);
	return ret;
}

static int do_fibmap(void)
{
	int fd = any_file(O_RDONLY), block = rnd(64), ret;

	if (fd < 0)
		return -1;
	ret = ioctl(fd, FIBMAP, &block);
	close(fd);
	return ret;
}

static int do_read(void)
{
	static char buf[1 << 16];
	int fd = any_file(O_RDONLY);

	if (fd < 0)
		return -1;
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	while (read(fd, buf, sizeof(buf)) > 0)
		;
	return close(fd);
}

/* Starts I/O, of which it waits for none. */
static int do_flush(void)
{
	int fd = any_file(O_RDONLY), ret;

	if (fd < 0)
		return -1;
	ret = sync_file_range(fd, rnd(1 << 20), 1 + rnd(1 << 20), SYNC_FILE_RANGE_WRITE);
	close(fd);
	return ret;
}

static int do_swap(void)
{
	static __u32 head[1024];
	char path[PATH];
	int fd, i, ret = -1;

	snprintf(path, sizeof(path), "%s/swap", dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return -1;
	head[256] = 1;			/* version */
	head[257] = SWAP_PAGES - 1;	/* last page */
	memcpy((char *)head + sizeof(head) - 10, "SWAPSPACE2", 10);
	for (i = 0; i < SWAP_PAGES; i++)
		if (pwrite(fd, head, sizeof(head), i * sizeof(head)) != sizeof(head))
			break;
	if (i == SWAP_PAGES && !swapon(path, 0))
		ret = swapoff(path);
	unlink(path);
	close(fd);
	return ret;
}

static int do_quota(void)
{
	int off = quotactl(QCMD(Q_QUOTAOFF, USRQUOTA), device, 0, NULL);

	pause_us(rnd(MAX_PAUSE_US));
	return quotactl(QCMD(Q_QUOTAON, USRQUOTA), device, 2, NULL) || off;
}

/* Leave between 1 and 8 MiB, or give all back. */
static int do_fill(void)
{
	char path[PATH];
	struct statvfs v;
	__s64 len;
	int fd, ret;

	snprintf(path, sizeof(path), "%s/big", dir);
	if (rnd(2) || statvfs(dir, &v))
		return unlink(path);
	len = (__s64)v.f_bavail * v.f_frsize - (1 << 20) - (__s64)rnd(7 << 20);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	ret = fd < 0 || len <= 0 ? -1 : fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, len);
	close(fd);
	return ret;
}

/* No reserve, and no block but a few; or reserves of other sizes. */
static int do_reserve(void)
{
	char path[PATH], value[32];
	struct statvfs v;
	__s64 len;
	int fd;

	snprintf(path, sizeof(path), "/sys/fs/ext4/%s/reserved_clusters",
		 strrchr(device, '/') + 1);
	snprintf(value, sizeof(value), "%u", rnd(2) ? 0 : 1 + (unsigned int)rnd(1024));
	if (put(path, value))
		return -1;
	if (strcmp(value, "0"))
		return 0;
	snprintf(path, sizeof(path), "%s/last", dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || fstatvfs(fd, &v)) {
		close(fd);
		return -1;
	}
	/* What others take meanwhile, and the tree of this file, may be in the way. */
	len = ((__s64)v.f_bfree - (__s64)rnd(16)) * v.f_frsize;
	while (len > 0 && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, len))
		len -= (1 + (__s64)rnd(16)) * v.f_frsize;
	pause_us(rnd(MAX_FULL_US));
	close(fd);
	return unlink(path);
}

/* Up to what the disk has. */
static int do_grow(void)
{
	__u32 blocks, log;
	__u64 now, most;
	int fd, ret;

	fd = open(device, O_RDONLY);
	if (fd < 0)
		return -1;
	ret = pread(fd, &blocks, sizeof(blocks), SB_OFFSET + SB_BLOCKS) != sizeof(blocks) ||
	      pread(fd, &log, sizeof(log), SB_OFFSET + SB_LOG_BLOCK_SIZE) != sizeof(log) ||
	      ioctl(fd, BLKGETSIZE64, &most);
	close(fd);
	if (ret)
		return -1;
	most >>= 10 + log;
	if (blocks >= most) {
		errno = EFBIG;
		return -1;
	}
	now = blocks + 1 + rnd(GROW_BYTES >> (10 + log));
	if (now > most)
		now = most;
	return ioctl(root, EXT4_IOC_RESIZE_FS, &now);
}

/* As when memory is short: pages go, and what ext4 and jbd2 remember of extents. */
static int do_reclaim(void)
{
	char value[32];

	snprintf(value, sizeof(value), "%u", (1 + (unsigned int)rnd(64)) << 20);
	/* EAGAIN: there was less than that. */
	return put(RECLAIM, value) && errno != EAGAIN ? -1 : 0;
}

static int do_trim(void)
{
	struct fstrim_range range = { 0, -1ULL, 0 };

	return ioctl(root, FITRIM, &range);
}

/* Each process has its own: what waits for the disk must not keep others from it. */
#define PROCESSES	4

static const struct rule {
	const char *name;
	int (*change)(void);
	unsigned int process, share;
} rules[] = {
	{ "remount", do_remount, 0, 1 },
	{ "stall", do_stall, 1, 1 },
	{ "flush", do_flush, 3, 1 },
	/* First those for which there is the least time, or that want no files */
	{ "quota", do_quota, 2, 1 },
	{ "swap", do_swap, 2, 1 },
	{ "grow", do_grow, 2, 1 },
	{ "freeze", do_freeze, 2, 1 },
	{ "trim", do_trim, 2, 1 },
	{ "reclaim", do_reclaim, 2, 2 },
	{ "reserve", do_reserve, 2, 1 },
	{ "fibmap", do_fibmap, 2, 3 },
	{ "move", do_move, 2, 4 },
	{ "drop", do_drop, 2, 5 },
	{ "read", do_read, 2, 6 },
	{ "fill", do_fill, 2, 2 },
};

static struct counts {
	unsigned long tried, worked;
	int error;			/* of the last that did not work */
} *counts;

static void change(unsigned int i)
{
	if (!strcmp(rules[i].name, not))
		return;
	counts[i].tried++;
	if (!rules[i].change())
		counts[i].worked++;
	else
		counts[i].error = errno;
}

static void change_one(unsigned int process)
{
	unsigned int i, sum = 0, at;

	for (i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].process == process)
			sum += rules[i].share;
	at = rnd(sum);
	for (i = 0; rules[i].process != process || at >= rules[i].share; i++)
		if (rules[i].process == process)
			at -= rules[i].share;
	change(i);
}

/* Until time is over: all of the process's rules in turn, then any of them. */
static void work(unsigned int process)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rules) && !over(); i++) {
		if (rules[i].process != process)
			continue;
		pause_us(rnd(MAX_PAUSE_US));
		change(i);
	}
	while (!over()) {
		pause_us(rnd(MAX_PAUSE_US));
		change_one(process);
	}
}

int main(int argc, char **argv)
{
	unsigned int i;
	long ms;

	ms = argc >= 8 ? atol(argv[5]) : 0;
	if (ms < 1 || !strtoull(argv[4], NULL, 10)) {
		fprintf(stderr, "usage: ext4_torture DIR DEVICE DISK SEED MS NOT OPTIONS...\n");
		return 2;
	}
	dir = argv[1];
	device = argv[2];
	disk = argv[3];
	not = argv[6];
	options = argv + 7;
	nr_options = argc - 7;
	root = open(dir, O_RDONLY | O_DIRECTORY);
	if (root < 0) {
		printf("%s: %s\n", dir, strerror(errno));
		return 1;
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += ms / 1000;
	end.tv_nsec += ms % 1000 * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_nsec -= 1000000000;
		end.tv_sec++;
	}
	counts = mmap(NULL, sizeof(*counts) * ARRAY_SIZE(rules), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED)
		return 1;
	for (i = 0; i < PROCESSES; i++) {
		if (fork())
			continue;
		rnd_seed(strtoull(argv[4], NULL, 10) * PROCESSES + i);
		work(i);
		exit(0);
	}
	while (wait(NULL) > 0)
		;
	for (i = 0; i < ARRAY_SIZE(rules); i++) {
		printf("%s%s %lu of %lu", i ? ", " : "", rules[i].name, counts[i].worked,
		       counts[i].tried);
		if (counts[i].tried && !counts[i].worked)
			printf(" (%s)", strerror(counts[i].error));
	}
	printf("\n");
	ioctl(root, FITHAW, 0);
	close(root);
	return stall(0) ? 1 : 0;
}
