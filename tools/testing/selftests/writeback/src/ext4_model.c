// SPDX-License-Identifier: GPL-2.0
/*
 * Random operations on files, compared with what memory says they must hold.
 *
 *	ext4_model DIR SEED OPS
 *
 * Three files below DIR, OPS operations in all: write at a random place, append,
 * truncate up and down, punch and zero a range, fallocate with and without
 * KEEP_SIZE, write through mmap, read, fsync, sync_file_range, drop the cache of a
 * file.  After each one that reads, and at the end of all files with their caches
 * dropped, content and size must equal the model's.  A write that returns less, or
 * ENOSPC or EDQUOT, is taken over as far as it came; after an fsync that does so the
 * file starts over.
 *
 * Prints "ops N bytes N short N lost N" and exits 0; 1 with a line for the first
 * difference (file, operation number, offset, got, expected) or an unexpected
 * error; 2 on bad usage.  Prints each operation to standard error if the
 * environment has MODEL_TRACE.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/falloc.h>
#include <linux/types.h>

#include "../../kselftest.h"
#include "rnd.h"

#define FILES		3
/* Room for several allocations ahead, small enough to compare often. */
#define MAX_SIZE	(6 << 20)
#define MAX_WRITE	1048576
#define PAGE		4096

struct file {
	char path[4096];
	int fd;
	size_t size;
	unsigned char *data;
};

static struct file files[FILES];
static long op;
static unsigned long written, shorts, lost;
static unsigned char buf[MAX_SIZE];
static int tracing;

static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("operation %ld: ", op);
	vprintf(fmt, ap);
	printf("\n");
	va_end(ap);
	exit(1);
}

static void note(const struct file *f, const char *what, size_t off, size_t len)
{
	if (tracing)
		fprintf(stderr, "%ld %s %s %zu %zu size %zu\n",
			op, f->path, what, off, len, f->size);
}

static int no_room(int err)
{
	return err == ENOSPC || err == EDQUOT;
}

/* Sizes of all magnitudes; half of the time whole pages. */
static size_t length(size_t max)
{
	size_t len = 1 + rnd(2UL << rnd(20));

	if (rnd(2))
		len = (len + PAGE - 1) / PAGE * PAGE;
	return len > max ? max : len;
}

static size_t offset(const struct file *f)
{
	size_t off = rnd(f->size + f->size / 4 + PAGE);

	if (rnd(2))
		off = off / PAGE * PAGE;
	return off >= MAX_SIZE ? MAX_SIZE - 1 : off;
}

static void compare(struct file *f, size_t off, size_t len)
{
	struct stat st;
	size_t i, done = 0;
	ssize_t n;

	if (fstat(f->fd, &st))
		die("fstat %s: %s", f->path, strerror(errno));
	if ((size_t)st.st_size != f->size)
		die("%s: size %lld, expected %zu", f->path, (long long)st.st_size, f->size);
	if (off >= f->size)
		return;
	if (len > f->size - off)
		len = f->size - off;
	while (done < len) {
		n = pread(f->fd, buf + done, len - done, off + done);
		if (n <= 0)
			die("read %s at %zu: %s", f->path, off + done, n ? strerror(errno) : "end");
		done += n;
	}
	if (!memcmp(buf, f->data + off, len))
		return;
	for (i = 0; buf[i] == f->data[off + i]; i++)
		;
	die("%s: offset %zu: 0x%02x, expected 0x%02x", f->path, off + i, buf[i], f->data[off + i]);
}

static void op_write(struct file *f, size_t off)
{
	size_t len = length(MAX_WRITE), i;
	ssize_t n;

	if (len > MAX_SIZE - off)
		len = MAX_SIZE - off;
	if (!len)
		return;
	note(f, "write", off, len);
	for (i = 0; i < len; i++)
		buf[i] = 1 + rnd(255);
	n = pwrite(f->fd, buf, len, off);
	if (n < 0 && no_room(errno)) {
		struct stat st;

		/* Nothing was written; a hole in front may have become part of the file. */
		if (fstat(f->fd, &st))
			die("fstat: %s", strerror(errno));
		shorts++;
		if ((size_t)st.st_size > f->size && (size_t)st.st_size <= off)
			f->size = st.st_size;
		return;
	}
	if (n < 0)
		die("write %s at %zu: %s", f->path, off, strerror(errno));
	if ((size_t)n < len)
		shorts++;
	memcpy(f->data + off, buf, n);
	written += n;
	if (off + n > f->size)
		f->size = off + n;
}

/* Nobody knows what is there. */
static void start_over(struct file *f)
{
	if (ftruncate(f->fd, 0))
		die("truncate %s: %s", f->path, strerror(errno));
	memset(f->data, 0, MAX_SIZE);
	f->size = 0;
}

/* Data that a full disk has no room for may be lost, if this says so. */
static void op_fsync(struct file *f)
{
	note(f, "fsync", 0, 0);
	if (!fsync(f->fd))
		return;
	if (!no_room(errno))
		die("fsync %s: %s", f->path, strerror(errno));
	lost++;
	start_over(f);
}

static void op_truncate(struct file *f)
{
	size_t size = rnd(4) ? offset(f) : rnd(f->size + 1);

	note(f, "truncate", size, 0);
	if (ftruncate(f->fd, size))
		die("truncate %s: %s", f->path, strerror(errno));
	if (size < f->size)
		memset(f->data + size, 0, f->size - size);
	f->size = size;
}

static void op_fallocate(struct file *f, int mode)
{
	size_t off = offset(f), len = length(MAX_WRITE);

	/* Whole pages take another way. */
	if (rnd(2)) {
		off -= off % PAGE;
		len += -len % PAGE;
	}
	if (len > MAX_SIZE - off)
		len = MAX_SIZE - off;
	note(f, "fallocate", off, len);
	if (fallocate(f->fd, mode, off, len)) {
		if (errno == EOPNOTSUPP)
			return;
		/* Zeroing and allocating may be done in part: start over. */
		if (!no_room(errno) || (mode & FALLOC_FL_PUNCH_HOLE))
			die("fallocate %d %s: %s", mode, f->path, strerror(errno));
		shorts++;
		start_over(f);
		return;
	}
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		memset(f->data + off, 0, len);
	if (!(mode & FALLOC_FL_KEEP_SIZE) && off + len > f->size)
		f->size = off + len;
}

/* Only over blocks that exist: a fault without space would be a SIGBUS. */
static void op_mmap(struct file *f)
{
	size_t off = rnd(f->size + 1) / PAGE * PAGE, len = length(64 * PAGE), i;
	unsigned char *map;

	if (off >= f->size)
		return;
	if (len > f->size - off)
		len = f->size - off;
	/* A fault maps all blocks of its page. */
	if (fallocate(f->fd, FALLOC_FL_KEEP_SIZE, off, (len + PAGE - 1) / PAGE * PAGE))
		return;
	note(f, "mmap", off, len);
	map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, off);
	if (map == MAP_FAILED)
		die("mmap %s: %s", f->path, strerror(errno));
	for (i = 0; i < len; i += 1 + rnd(PAGE / 2)) {
		map[i] = 1 + rnd(255);
		f->data[off + i] = map[i];
	}
	if (munmap(map, len))
		die("munmap: %s", strerror(errno));
}

static void step(void)
{
	struct file *f = &files[rnd(FILES)];

	switch (rnd(20)) {
	case 0 ... 4:
		op_write(f, offset(f));
		break;
	case 5 ... 8:
		op_write(f, f->size);
		break;
	case 9:
		op_truncate(f);
		break;
	case 10:
		op_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
		break;
	case 11:
		op_fallocate(f, FALLOC_FL_ZERO_RANGE | (rnd(2) ? FALLOC_FL_KEEP_SIZE : 0));
		break;
	case 12:
		op_fallocate(f, rnd(2) ? FALLOC_FL_KEEP_SIZE : 0);
		break;
	case 13:
		op_mmap(f);
		break;
	case 14:
		op_fsync(f);
		break;
	case 15:
		note(f, "sync_file_range", 0, 0);
		sync_file_range(f->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
		break;
	case 16:
		posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
		break;
	default:
		compare(f, offset(f), length(MAX_WRITE));
	}
}

int main(int argc, char **argv)
{
	__u64 seed;
	long ops;
	int i;

	seed = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
	ops = argc == 4 ? atol(argv[3]) : 0;
	if (!seed || ops <= 0) {
		fprintf(stderr, "usage: ext4_model DIR SEED OPS\n");
		return 2;
	}
	tracing = !!getenv("MODEL_TRACE");
	rnd_seed(seed);
	for (i = 0; i < FILES; i++) {
		struct file *f = &files[i];

		snprintf(f->path, sizeof(f->path), "%s/model%d", argv[1], i);
		f->fd = open(f->path, O_RDWR | O_CREAT | O_TRUNC, 0644);
		f->data = calloc(1, MAX_SIZE);
		if (f->fd < 0 || !f->data) {
			fprintf(stderr, "ext4_model: %s: %s\n", f->path, strerror(errno));
			return 1;
		}
	}
	for (op = 0; op < ops; op++)
		step();
	for (i = 0; i < FILES; i++) {
		compare(&files[i], 0, MAX_SIZE);
		op_fsync(&files[i]);
		posix_fadvise(files[i].fd, 0, 0, POSIX_FADV_DONTNEED);
		compare(&files[i], 0, MAX_SIZE);
	}
	printf("ops %ld bytes %lu short %lu lost %lu\n", ops, written, shorts, lost);
	return 0;
}
