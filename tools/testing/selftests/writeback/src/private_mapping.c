// SPDX-License-Identifier: GPL-2.0
/*
 * private_mapping FILE COMMAND [ARG...]: does a private mapping of FILE, which it
 * makes, keep what was written to it while COMMAND runs?
 *
 * Exit code: 0 if it does, 1 if not, 2 if that cannot be found out.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE	4096
#define OF_FILE	'A'
#define OF_US	'P'

static int run(char **argv)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		execvp(argv[0], argv);
		_exit(127);
	}
	return pid < 0 || waitpid(pid, &status, 0) < 0 || status;
}

int main(int argc, char **argv)
{
	char data[SIZE];
	char *map;
	int fd;

	if (argc < 3) {
		fprintf(stderr, "usage: private_mapping FILE COMMAND [ARG...]\n");
		return 2;
	}
	memset(data, OF_FILE, SIZE);
	fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
	if (fd < 0 || pwrite(fd, data, SIZE, 0) != SIZE || fsync(fd)) {
		perror(argv[1]);
		return 2;
	}
	map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	memset(map, OF_US, SIZE);
	if (run(argv + 2)) {
		fprintf(stderr, "private_mapping: %s fails\n", argv[2]);
		return 2;
	}
	memset(data, OF_US, SIZE);
	return memcmp(map, data, SIZE) ? 1 : 0;
}
