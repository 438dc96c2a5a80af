// SPDX-License-Identifier: GPL-2.0
/*
 * Replays what dm-log-writes logged, up to the moments that a power cut may show.
 *
 *	log_replay points LOG		print the number of entries up to and with each
 *					flush or FUA write, and of all, one a line
 *	log_replay apply LOG TARGET FROM TO
 *					write entries FROM ... TO - 1 to TARGET; print
 *					"writes N bytes N discards N"
 *
 * Exit code 0, 1 with one line if the log cannot be read or the target not be
 * written, 2 on bad usage.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/types.h>

#include "../../kselftest.h"

/* drivers/md/dm-log-writes.c; all little-endian, as the machines this runs on */
#define LOG_MAGIC	0x6a736677736872ULL
#define LOG_FLUSH	1ULL
#define LOG_FUA		2ULL
#define LOG_DISCARD	4ULL

struct log_super {
	__u64 magic, version, nr_entries;
	__u32 sector_size;
};

struct log_entry {
	__u64 sector, nr_sectors, flags, data_len;
};

#define CHUNK	1048576UL

static char buf[CHUNK];
static int in;

static void die(const char *what, __u64 entry)
{
	printf("entry %llu: %s: %s\n", (unsigned long long)entry, what,
	       errno ? strerror(errno) : "too short");
	exit(1);
}

static void get(void *to, size_t len, __u64 at, __u64 entry)
{
	errno = 0;
	if (pread(in, to, len, at) != (ssize_t)len)
		die("log", entry);
}

static void copy(int out, __u64 from, __u64 to, __u64 len, __u64 entry)
{
	size_t n;

	for (; len; len -= n, from += n, to += n) {
		n = len < CHUNK ? len : CHUNK;
		get(buf, n, from, entry);
		if (pwrite(out, buf, n, to) != (ssize_t)n)
			die("target", entry);
	}
}

int main(int argc, char **argv)
{
	__u64 i, at, len, first = 0, last = 0, writes = 0, bytes = 0, discards = 0;
	struct log_super super;
	struct log_entry e;
	int points, out = -1;

	points = argc == 3 && !strcmp(argv[1], "points");
	if (!points && (argc != 6 || strcmp(argv[1], "apply"))) {
		fprintf(stderr, "usage: log_replay points LOG\n"
			"       log_replay apply LOG TARGET FROM TO\n");
		return 2;
	}
	in = open(argv[2], O_RDONLY);
	if (in < 0) {
		printf("%s: %s\n", argv[2], strerror(errno));
		return 1;
	}
	get(&super, sizeof(super), 0, 0);
	if (super.magic != LOG_MAGIC || super.version != 1 || !super.sector_size) {
		printf("%s is not a log of dm-log-writes\n", argv[2]);
		return 1;
	}
	if (!points) {
		out = open(argv[3], O_WRONLY);
		if (out < 0) {
			printf("%s: %s\n", argv[3], strerror(errno));
			return 1;
		}
		first = strtoull(argv[4], NULL, 10);
		last = strtoull(argv[5], NULL, 10);
	}
	at = super.sector_size;
	for (i = 0; i < super.nr_entries && (points || i < last); i++) {
		get(&e, sizeof(e), at, i);
		at += super.sector_size;
		len = e.nr_sectors * super.sector_size;
		if (points) {
			if ((e.flags & (LOG_FLUSH | LOG_FUA)) || i == super.nr_entries - 1)
				printf("%llu\n", (unsigned long long)i + 1);
		} else if (i >= first && (e.flags & LOG_DISCARD)) {
			discards++;
		} else if (i >= first) {
			copy(out, at, e.sector * super.sector_size, len, i);
			writes += !!len;
			bytes += len;
		}
		if (!(e.flags & LOG_DISCARD))
			at += len;
	}
	if (points)
		return 0;
	if (fsync(out) || close(out))
		die("target", i);
	printf("writes %llu bytes %llu discards %llu\n", (unsigned long long)writes,
	       (unsigned long long)bytes, (unsigned long long)discards);
	return 0;
}
