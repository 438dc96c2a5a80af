// SPDX-License-Identifier: GPL-2.0
/*
 * Random 4-KiB O_DIRECT reads in an open loop: each is issued when it is due,
 * whether or not earlier ones have come back.
 *
 * A reader that waits for one read before it asks for the next leaves out what a
 * stalled disk would have been asked meanwhile ("coordinated omission", Gil Tene,
 * "How NOT to Measure Latency", 2013).  So this one reports two latencies of each
 * read: since it was issued, which is the disk's, and since it was due, which is
 * what who asked for it waited.  They differ where all threads are waiting.
 *
 *	open_reader FILE IOPS SECONDS SEED [THREADS]
 *
 *	FILE	or a block device
 *	IOPS	rate of all arrivals together, 1 to 10^6 per second; a Poisson process
 *	THREADS	reads in flight at most, 1 to 4096 (default 256)
 *
 * Writes one JSON object in the form of "fio --output-format=json+" for one read
 * job: clat_ns is since issue, due_ns since the time due, both with percentiles
 * (nearest rank, of every single read), max, and bins (ns rounded to three
 * digits: how often).  late: reads issued 1 ms or more after they were due.
 * Exit code 1 with one line on standard error if FILE cannot be read, 2 on bad
 * usage.  A failed read counts as an error and as a read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rnd.h"

#define BLOCK		4096
#define NSEC_PER_SEC	1000000000LL
#define NSEC_PER_MSEC	1000000LL
#define MAX_THREADS	4096
#define STACK_BYTES	65536
/* A start late enough for every thread to be there. */
#define START_NS	(2 * NSEC_PER_MSEC)

struct arrival {
	long long due;		/* ns since the start */
	off_t offset;
	long long device;	/* ns from issue to end */
	long long response;	/* ns from due to end */
};

static struct arrival *arrivals;
static long n_arrivals, next_arrival, errors;
static long long start;
static int fd;

static void die(const char *what)
{
	fprintf(stderr, "open_reader: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static void sleep_until(long long ns)
{
	struct timespec ts = { ns / NSEC_PER_SEC, ns % NSEC_PER_SEC };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static void *reader(void *buffer)
{
	long long issued, ended;
	struct arrival *a;
	long i;

	while ((i = __atomic_fetch_add(&next_arrival, 1, __ATOMIC_RELAXED)) < n_arrivals) {
		a = &arrivals[i];
		sleep_until(start + a->due);
		issued = now_ns();
		if (pread(fd, buffer, BLOCK, a->offset) != BLOCK)
			__atomic_fetch_add(&errors, 1, __ATOMIC_RELAXED);
		ended = now_ns();
		a->device = ended - issued;
		a->response = ended - start - a->due;
	}
	return NULL;
}

/* Exponential intervals: a Poisson process. */
static void schedule(double iops, double seconds, long long blocks)
{
	long room = iops * seconds * 1.2 + 1000;
	double at = 0;

	arrivals = calloc(room, sizeof(*arrivals));
	if (!arrivals)
		die("no memory for the arrivals");
	for (;;) {
		at -= log((rnd(1ULL << 48) + 1.0) / (1ULL << 48)) / iops;
		if (at >= seconds || n_arrivals == room)
			break;
		arrivals[n_arrivals].due = at * NSEC_PER_SEC;
		arrivals[n_arrivals].offset = (off_t)rnd(blocks) * BLOCK;
		n_arrivals++;
	}
}

static void run(int n_threads)
{
	pthread_t threads[MAX_THREADS];
	pthread_attr_t attr;
	void *buffer;
	int i;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	start = now_ns() + START_NS;
	for (i = 0; i < n_threads; i++) {
		if (posix_memalign(&buffer, BLOCK, BLOCK))
			die("no memory for a buffer");
		errno = pthread_create(&threads[i], &attr, reader, buffer);
		if (errno)
			die("cannot start a thread");
	}
	for (i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
}

static int by_value(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return (x > y) - (x < y);
}

/* To three digits, so that a plot has few points. */
static long long rounded(long long ns)
{
	long long unit = 1;

	while (ns / unit >= 1000)
		unit *= 10;
	return ns / unit * unit;
}

static void print_latency(const char *name, size_t member)
{
	static const double percentiles[] = { 50, 60, 70, 80, 90, 95, 99, 99.9, 99.95, 99.99 };
	long long *v = malloc((n_arrivals + 1) * sizeof(*v)), bin;
	long i, from, rank;
	double sum = 0;
	size_t p;

	if (!v)
		die("no memory for the percentiles");
	for (i = 0; i < n_arrivals; i++) {
		v[i] = *(long long *)((char *)&arrivals[i] + member);
		sum += v[i];
	}
	qsort(v, n_arrivals, sizeof(*v), by_value);
	printf("   \"%s\": {\"min\": %lld, \"max\": %lld, \"mean\": %.0f,\n", name,
	       v[0], v[n_arrivals - 1], sum / n_arrivals);
	printf("    \"percentile\": {");
	for (p = 0; p < sizeof(percentiles) / sizeof(*percentiles); p++) {
		rank = ceil(percentiles[p] / 100 * n_arrivals);
		printf("%s\"%.6f\": %lld", p ? ", " : "", percentiles[p], v[rank ? rank - 1 : 0]);
	}
	printf("},\n    \"bins\": {");
	for (i = 0; i < n_arrivals;) {
		bin = rounded(v[i]);
		for (from = i; i < n_arrivals && rounded(v[i]) == bin; i++)
			;
		printf("%s\"%lld\": %ld", from ? ", " : "", bin, i - from);
	}
	printf("}}");
	free(v);
}

static double number(const char *text, double low, double high)
{
	char *end;
	double value = strtod(text, &end);

	if (*end || end == text || !(value >= low && value <= high)) {
		fprintf(stderr, "open_reader: '%s' must be from %g to %g\n", text, low, high);
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	double iops, seconds;
	long late = 0, i;
	long long blocks;
	off_t end;
	int n_threads;

	if (argc < 5 || argc > 6) {
		fputs("usage: open_reader FILE IOPS SECONDS SEED [THREADS]\n", stderr);
		return 2;
	}
	iops = number(argv[2], 1, 1e6);
	seconds = number(argv[3], 0.001, 1e6);
	rnd_seed(number(argv[4], 1, 1e9));
	n_threads = argc > 5 ? number(argv[5], 1, MAX_THREADS) : 256;
	fd = open(argv[1], O_RDONLY | O_DIRECT);
	if (fd < 0)
		die(argv[1]);
	/* Of a block device, too. */
	end = lseek(fd, 0, SEEK_END);
	if (end < 0)
		die(argv[1]);
	blocks = end / BLOCK;
	if (!blocks) {
		fprintf(stderr, "open_reader: %s: shorter than %d bytes\n", argv[1], BLOCK);
		return 1;
	}
	schedule(iops, seconds, blocks);
	if (!n_arrivals) {
		fputs("open_reader: not one read is due in that time\n", stderr);
		return 1;
	}
	run(n_threads);

	for (i = 0; i < n_arrivals; i++)
		late += arrivals[i].response - arrivals[i].device >= NSEC_PER_MSEC;
	printf("{\"jobs\": [{\"jobname\": \"open\", \"error\": %d,\n", errors ? EIO : 0);
	printf("  \"read\": {\"total_ios\": %ld, ", n_arrivals);
	printf("\"iops\": %.3f, ", n_arrivals / seconds);
	printf("\"runtime\": %.0f, \"late\": %ld, \"failed\": %ld,\n", seconds * 1e3, late, errors);
	print_latency("clat_ns", offsetof(struct arrival, device));
	printf(",\n");
	print_latency("due_ns", offsetof(struct arrival, response));
	printf("}}]}\n");
	return 0;
}
