// SPDX-License-Identifier: GPL-2.0
/*
 * What became of the files of powercut_load.
 *
 *	powercut_verify DIR STATE...	DIR is as it was after a power cut
 *	powercut_verify DIR		no state: only whether all data is in its place
 *
 * Prints "words N lost N stale N foreign N garbage N size N missing N" and exits 0;
 * 1, with a line for each of the first differences, if any but words is not 0:
 *	lost	acknowledged by fsync, not changed since, and not there
 *	stale	what was on the disk before the file system
 *	foreign	data of another file, another place or an earlier file system
 *	garbage	none of these
 *	size	not what was acknowledged, nor what was done since
 *	missing	files acknowledged that are not there, or unlinked and synced and there
 * 2 on bad usage.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "../../kselftest.h"
#include "powercut.h"

#define SHOWN	8

enum bad { LOST, STALE, FOREIGN, GARBAGE, SIZE, MISSING, BADS };

static const char * const names[] = {
	"lost", "stale", "foreign", "garbage", "size", "missing"
};

static unsigned long words, found[BADS];
static unsigned int shown;
static __u64 data[PC_UNITS * PC_WORDS];

static void bad(enum bad what, unsigned int id, size_t at, __u64 got, __u64 expected)
{
	found[what]++;
	if (shown++ < SHOWN)
		printf("file %u, offset %zu: %s: %#llx, expected %#llx\n",
		       id, at, names[what], (unsigned long long)got,
		       (unsigned long long)expected);
}

/* Size in bytes of what is in data[], -1 if there is no such file */
static long load(const char *path)
{
	struct stat st;
	size_t done = 0;
	ssize_t n;
	int fd;

	fd = open(path, O_RDONLY);
	if (fd < 0 && errno == ENOENT)
		return -1;
	if (fd < 0) {
		printf("%s: %s\n", path, strerror(errno));
		exit(1);
	}
	while ((n = read(fd, (char *)data + done, sizeof(data) - done)) > 0)
		done += n;
	if (n < 0 || fstat(fd, &st) || (size_t)st.st_size != done) {
		printf("%s at %zu: %s\n", path, done, n < 0 ? strerror(errno) : "not its size");
		exit(1);
	}
	close(fd);
	return done;
}

static int may_be(const struct pc_file *f, __u32 unit, enum pc_kind kind, __u32 gen)
{
	__u32 i;

	for (i = 0; i < f->nr_ops; i++)
		if (f->ops[i].kind == kind && f->ops[i].first <= unit &&
		    unit < f->ops[i].last && (kind == PC_ZERO || f->ops[i].gen == gen))
			return 1;
	return 0;
}

/* Is this word the file's own, at its place?  Any generation will do without f. */
static void check_word(const struct pc_file *f, unsigned int cut, unsigned int id, __u64 at)
{
	__u64 got = data[at], expected = 0;
	__u32 unit = at / PC_WORDS, gen = got >> 18 & (PC_GENS - 1);

	words++;
	if (f && f->acked[unit])
		expected = pc_word(cut, id, f->acked[unit], at);
	if (got == expected && f)
		return;
	if (!got) {
		if (f && !may_be(f, unit, PC_ZERO, 0))
			bad(LOST, id, at * 8, got, expected);
	} else if (got == PC_STALE) {
		bad(STALE, id, at * 8, got, expected);
	} else if (got >> 60 != PC_TAG) {
		bad(GARBAGE, id, at * 8, got, expected);
	} else if (got != pc_word(cut, id, gen, at)) {
		bad(FOREIGN, id, at * 8, got, expected);
	} else if (f && !may_be(f, unit, PC_WRITE, gen)) {
		bad(LOST, id, at * 8, got, expected);
	}
}

static void check_file(const char *dir, const struct pc_file *f)
{
	char path[4096];
	long size;
	__u64 at;

	pc_name(path, sizeof(path), dir, f->id);
	size = load(path);
	if (size < 0) {
		if (f->life == PC_THERE)
			bad(MISSING, f->id, 0, 0, f->acked_size * PC_UNIT);
		return;
	}
	if (f->life == PC_GONE)
		bad(MISSING, f->id, 0, size, 0);
	if (size < (long)(f->min_size * PC_UNIT) || size > (long)(f->max_size * PC_UNIT))
		bad(SIZE, f->id, 0, size, f->acked_size * PC_UNIT);
	for (at = 0; at < (__u64)size / 8; at++)
		check_word(f, f->cut, f->id, at);
}

static void check_states(const char *dir, char **states, int n)
{
	static struct pc_file f;
	FILE *in;

	for (; n; n--, states++) {
		in = fopen(*states, "r");
		if (!in) {
			printf("%s: %s\n", *states, strerror(errno));
			exit(1);
		}
		while (fread(&f, sizeof(f), 1, in) == 1)
			check_file(dir, &f);
		fclose(in);
	}
}

static void check_places(const char *dir)
{
	char path[4096];
	struct dirent *e;
	unsigned int id;
	__u64 at, n, cut;
	long size;
	DIR *d;

	d = opendir(dir);
	if (!d) {
		printf("%s: %s\n", dir, strerror(errno));
		exit(1);
	}
	while ((e = readdir(d))) {
		if (sscanf(e->d_name, "f%u", &id) != 1)
			continue;
		pc_name(path, sizeof(path), dir, id);
		size = load(path);
		/* The first word with a tag says which cut it is from. */
		for (at = 0, n = size / 8; at < n && data[at] >> 60 != PC_TAG; at++)
			;
		cut = at < n ? data[at] >> 48 & (PC_CUTS - 1) : 0;
		for (at = 0; at < n; at++)
			check_word(NULL, cut, id, at);
	}
	closedir(d);
}

int main(int argc, char **argv)
{
	int i, any = 0;

	if (argc < 2) {
		fprintf(stderr, "usage: powercut_verify DIR [STATE...]\n");
		return 2;
	}
	if (argc > 2)
		check_states(argv[1], argv + 2, argc - 2);
	else
		check_places(argv[1]);
	printf("words %lu", words);
	for (i = 0; i < BADS; i++) {
		printf(" %s %lu", names[i], found[i]);
		any |= !!found[i];
	}
	printf("\n");
	return any;
}
