// SPDX-License-Identifier: GPL-2.0
/*
 * Preloaded into QEMU by "wb check --tier determinism": the thread of the virtual
 * CPU pauses for 0.1 ms each sixteenth time that it leaves translated code by
 * longjmp(), as it does at a hlt once it has marked the CPU as halted and before
 * it has counted the last instructions.  If the main loop's thread may look at the
 * clock in that time, it does now, and not only where a busy host lets it.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <stdlib.h>
#include <time.h>

#define EACH		16
#define PAUSE_NS	100000

/* What siglongjmp() is with _FORTIFY_SOURCE; QEMU's coroutines use the plain one. */
void __longjmp_chk(sigjmp_buf env, int val)
{
	static __thread unsigned int left_code;
	void (*next)(sigjmp_buf env, int val) = dlsym(RTLD_NEXT, "__longjmp_chk");

	if (++left_code % EACH == 0)
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	next(env, val);
	abort();
}
