// SPDX-License-Identifier: GPL-2.0
/*
 * What delay accounting has counted of a task's sleeps for dirty memory, by
 * taskstats: "count usec".  Root only, and kernel.task_delayacct must have been 1
 * when the task began.
 *
 *	task_delays -p PID		of a task
 *	task_delays COMMAND [ARG...]	of a program of one thread, when it has ended
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h>

/*
 * Where dirty_throttle_count and dirty_throttle_delay_total are in struct taskstats,
 * as the headers that this is built with may be older: on mainline from version 18
 * on, and on 6.12, which still has version 14.
 */
#define PAIR_V18	688
#define PAIR_6_12	432
#define SIZE_6_12	448

struct message {
	struct nlmsghdr n;
	struct genlmsghdr g;
	char data[4096];
};

static void die(const char *what)
{
	fprintf(stderr, "task_delays: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The attribute @type among @len bytes at @data, NULL if it is not there. */
static struct nlattr *find(void *data, int len, int type)
{
	struct nlattr *a = data;

	while (len >= NLA_HDRLEN && a->nla_len >= NLA_HDRLEN && a->nla_len <= len) {
		if ((a->nla_type & NLA_TYPE_MASK) == type)
			return a;
		len -= NLA_ALIGN(a->nla_len);
		a = (void *)((char *)a + NLA_ALIGN(a->nla_len));
	}
	return NULL;
}

static struct nlattr *inside(struct nlattr *a, int type)
{
	return a ? find((char *)a + NLA_HDRLEN, a->nla_len - NLA_HDRLEN, type) : NULL;
}

/* Ask @family for @cmd with one attribute; the answer's attribute @want. */
static struct nlattr *ask(int fd, struct message *m, int family, int cmd, int type,
			  const void *value, int size, int want)
{
	struct nlattr *a = (void *)m->data;
	ssize_t len;

	memset(m, 0, sizeof(*m));
	a->nla_type = type;
	a->nla_len = NLA_HDRLEN + size;
	memcpy((char *)a + NLA_HDRLEN, value, size);
	m->n.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN) + NLA_ALIGN(a->nla_len);
	m->n.nlmsg_type = family;
	m->n.nlmsg_flags = NLM_F_REQUEST;
	m->g.cmd = cmd;
	m->g.version = 1;
	if (send(fd, m, m->n.nlmsg_len, 0) < 0)
		die("send");
	len = recv(fd, m, sizeof(*m), 0);
	if (len < (ssize_t)NLMSG_LENGTH(GENL_HDRLEN) || m->n.nlmsg_type == NLMSG_ERROR)
		return NULL;
	return find(m->data, len - NLMSG_LENGTH(GENL_HDRLEN), want);
}

static int show(uint32_t pid)
{
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
	struct message m;
	struct nlattr *a;
	uint64_t pair[2];
	uint16_t family;
	const char *stats;

	if (fd < 0)
		die("socket");
	a = ask(fd, &m, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME,
		TASKSTATS_GENL_NAME, sizeof(TASKSTATS_GENL_NAME), CTRL_ATTR_FAMILY_ID);
	if (!a) {
		fprintf(stderr, "task_delays: no taskstats\n");
		return 1;
	}
	memcpy(&family, (char *)a + NLA_HDRLEN, sizeof(family));
	a = ask(fd, &m, family, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_PID, &pid, sizeof(pid),
		TASKSTATS_TYPE_AGGR_PID);
	a = inside(a, TASKSTATS_TYPE_STATS);
	stats = (char *)a + NLA_HDRLEN;
	if (a && a->nla_len == NLA_HDRLEN + SIZE_6_12) {
		memcpy(pair, stats + PAIR_6_12, sizeof(pair));
	} else if (a && a->nla_len >= NLA_HDRLEN + PAIR_V18 + sizeof(pair)) {
		memcpy(pair, stats + PAIR_V18, sizeof(pair));
	} else {
		fprintf(stderr, "task_delays: the kernel says nothing of task %u\n", pid);
		return 1;
	}
	printf("%llu %llu\n", (unsigned long long)pair[0], (unsigned long long)pair[1] / 1000);
	return 0;
}

int main(int argc, char **argv)
{
	siginfo_t info;
	int status, shown;
	pid_t pid;

	if (argc == 3 && !strcmp(argv[1], "-p"))
		return show(atoi(argv[2]));
	if (argc < 2 || argv[1][0] == '-') {
		fprintf(stderr, "usage: task_delays -p PID | COMMAND [ARG...]\n");
		return 2;
	}
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		execvp(argv[1], argv + 1);
		die(argv[1]);
	}
	/* Its counters are there until it is waited for. */
	if (waitid(P_PID, pid, &info, WEXITED | WNOWAIT))
		die("waitid");
	shown = show(pid);
	if (waitpid(pid, &status, 0) != pid || status)
		return 1;
	return shown;
}
