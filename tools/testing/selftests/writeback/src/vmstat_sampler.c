// SPDX-License-Identifier: GPL-2.0
/*
 * Samples the dirty page counters and their limits until it is told to stop.
 *
 * A shell loop forks several times per sample; this reads /proc/vmstat once, so
 * that counters and thresholds of a line belong to the same moment.
 *
 *	vmstat_sampler INTERVAL_MS [FILE]
 *
 * Writes one CSV line per sample to FILE (default: standard output): seconds
 * since the start, then the counters in pages.  SIGTERM or SIGINT end it (exit
 * code 0); everything sampled until then is in FILE.  Exit code 1 with one line
 * on standard error if /proc/vmstat or FILE cannot be used, 2 on bad usage.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../kselftest.h"

#define MAX_INTERVAL_MS	60000
#define NSEC_PER_SEC	1000000000LL
#define NSEC_PER_MSEC	1000000LL
/* /proc/vmstat hands out at least a page per read; the counters are in the first. */
#define CHUNK		4096

static const char * const counters[] = {
	"nr_dirty", "nr_writeback", "nr_dirty_threshold",
	"nr_dirty_background_threshold", "nr_free_pages",
};

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static int die(const char *what)
{
	fprintf(stderr, "vmstat_sampler: %s: %s\n", what, strerror(errno));
	return 1;
}

/* Value of the line "name value" in a /proc/vmstat text; -1 if there is none. */
static long long counter(const char *text, const char *name)
{
	size_t len = strlen(name);
	const char *line = text;

	while (line && *line) {
		if (!strncmp(line, name, len) && line[len] == ' ')
			return strtoll(line + len, NULL, 10);
		line = strchr(line, '\n');
		if (line)
			line++;
	}
	return -1;
}

static long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* A second read would be a second snapshot, so there is one per sample. */
static int sample(int fd, FILE *out, double seconds)
{
	char text[CHUNK + 1];
	ssize_t got;
	size_t i;

	got = pread(fd, text, CHUNK, 0);
	if (got < 0)
		return die("/proc/vmstat");
	text[got] = '\0';

	fprintf(out, "%.3f", seconds);
	for (i = 0; i < ARRAY_SIZE(counters); i++)
		fprintf(out, ",%lld", counter(text, counters[i]));
	if (fputc('\n', out) == EOF)
		return die("output");
	return 0;
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_signal };
	long long start, next, interval;
	FILE *out = stdout;
	struct timespec ts;
	size_t i;
	int fd;

	interval = argc > 1 ? atoi(argv[1]) : 0;
	if (argc > 3 || interval < 1 || interval > MAX_INTERVAL_MS) {
		fprintf(stderr, "usage: vmstat_sampler INTERVAL_MS (1..%d) [FILE]\n",
			MAX_INTERVAL_MS);
		return 2;
	}
	if (argc > 2) {
		out = fopen(argv[2], "w");
		if (!out)
			return die(argv[2]);
	}
	fd = open("/proc/vmstat", O_RDONLY);
	if (fd < 0)
		return die("/proc/vmstat");

	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);

	fprintf(out, "seconds");
	for (i = 0; i < ARRAY_SIZE(counters); i++)
		fprintf(out, ",%s", counters[i]);
	fputc('\n', out);

	start = now_ns();
	for (next = start; !stop; next += interval * NSEC_PER_MSEC) {
		ts.tv_sec = next / NSEC_PER_SEC;
		ts.tv_nsec = next % NSEC_PER_SEC;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
		if (sample(fd, out, (double)(now_ns() - start) / NSEC_PER_SEC))
			return 1;
	}
	if (fclose(out))
		return die("output");
	return 0;
}
