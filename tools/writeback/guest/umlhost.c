// SPDX-License-Identifier: GPL-2.0
/*
 * Preloaded into User Mode Linux by the fast lane: takes away the four things of
 * the host that the kernel cannot be told to do without.
 *
 * getrandom(): the guest's entropy.  The numbers come from $UMLHOST_SEED
 * (splitmix64, Steele et al., OOPSLA 2014), so that hash seeds and UUIDs are the
 * same in every run.
 *
 * sbrk(0): where the program's heap begins, which is where the guest's memory does.
 * The host puts it at random, up to 1 GiB behind the program, and with it every
 * address in the guest.  It is told a fixed one behind that; personality(2) could
 * do the same, but not every container allows it.
 *
 * ptrace(): PTRACE_O_EXITKILL.  Without it, a UML that is killed leaves its
 * guest's processes running on the host, where their system calls are real ones.
 * And PTRACE_SETREGSET of the floating-point state: UML 6.12 has 2696 bytes of it
 * (arch/x86/um/user-offsets.c), and a host whose CPU has more, 11008 with AMX,
 * takes all or nothing: EFAULT, and the guest's init is killed.  The rest is
 * zeros, which the state's own header says are in no use.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/random.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* ARCH=um is linked to 0x60000000 (arch/x86/um/Kconfig has no choice of it). */
#define HEAP	((void *)0xb0000000)

static uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

ssize_t getrandom(void *buf, size_t len, unsigned int flags)
{
	static uint64_t state;
	static int seeded;
	const char *seed;
	uint64_t word;
	size_t at, part;

	(void)flags;
	if (!seeded) {
		seed = getenv("UMLHOST_SEED");
		state = seed ? strtoull(seed, NULL, 10) : 0;
		seeded = 1;
	}
	for (at = 0; at < len; at += part) {
		word = splitmix64(&state);
		part = len - at < sizeof(word) ? len - at : sizeof(word);
		memcpy((char *)buf + at, &word, part);
	}
	return len;
}

void *sbrk(intptr_t increment)
{
	static void *(*next)(intptr_t increment);
	void *now;

	if (!next)
		next = (void *(*)(intptr_t))dlsym(RTLD_NEXT, "sbrk");
	now = next(increment);
	return increment == 0 && now < HEAP ? HEAP : now;
}

long ptrace(enum __ptrace_request request, ...)
{
	static long (*next)(enum __ptrace_request request, ...);
	/* The host takes as much of it as its CPU has. */
	static char state[1 << 16];
	struct iovec all = { state, sizeof(state) };
	const struct iovec *part;
	uintptr_t data;
	va_list args;
	void *addr;
	pid_t pid;

	if (!next)
		next = (long (*)(enum __ptrace_request, ...))dlsym(RTLD_NEXT, "ptrace");
	va_start(args, request);
	pid = va_arg(args, pid_t);
	addr = va_arg(args, void *);
	data = va_arg(args, uintptr_t);
	va_end(args);
	if (request == PTRACE_SETOPTIONS)
		data |= PTRACE_O_EXITKILL;
	if (request == PTRACE_SETREGSET && (uintptr_t)addr == NT_X86_XSTATE) {
		part = (const struct iovec *)data;
		if (part->iov_len < sizeof(state)) {
			memcpy(state, part->iov_base, part->iov_len);
			data = (uintptr_t)&all;
		}
	}
	return next(request, pid, addr, data);
}
