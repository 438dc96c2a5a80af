// SPDX-License-Identifier: GPL-2.0
/*
 * ext4_checkpoint FILE: write everything in the journal of FILE's ext4 to its place
 * and empty the journal (EXT4_IOC_CHECKPOINT, Documentation/admin-guide/ext4.rst).
 *
 * Exit code: 0 if done, 1 with one line on standard error if not, 2 on bad usage.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <linux/types.h>

/* As in fs/ext4/ext4.h, which is not for user space. */
#define EXT4_IOC_CHECKPOINT	_IOW('f', 43, __u32)

int main(int argc, char **argv)
{
	__u32 flags = 0;
	int fd;

	if (argc != 2) {
		fputs("usage: ext4_checkpoint FILE\n", stderr);
		return 2;
	}
	fd = open(argv[1], O_RDONLY);
	if (fd < 0 || ioctl(fd, EXT4_IOC_CHECKPOINT, &flags)) {
		fprintf(stderr, "ext4_checkpoint: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	return 0;
}
