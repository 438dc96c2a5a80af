/* SPDX-License-Identifier: GPL-2.0 */
/* What kernels from 6.12 to 7.3 call differently. */
#ifndef _WBDISK_COMPAT_H
#define _WBDISK_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/slab.h>
#include <linux/version.h>

/* hrtimer_setup() replaced hrtimer_init() and a store to the member. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
static inline void
hrtimer_setup(struct hrtimer *timer,
	      enum hrtimer_restart (*function)(struct hrtimer *timer),
	      clockid_t clock_id, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock_id, mode);
	timer->function = function;
}
#endif

/* Objects are allocated by type, not by size. */
#ifndef kzalloc_obj
#define kzalloc_obj(obj, gfp)	kzalloc(sizeof(obj), gfp)
#endif

/* Merging became the default, a driver can only forbid it. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
#define WBD_TAG_FLAGS	BLK_MQ_F_SHOULD_MERGE
#else
#define WBD_TAG_FLAGS	0
#endif

/* Namespaces of symbols became string literals. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
#define WBD_KUNIT_NS	EXPORTED_FOR_KUNIT_TESTING
#else
#define WBD_KUNIT_NS	"EXPORTED_FOR_KUNIT_TESTING"
#endif

#endif /* _WBDISK_COMPAT_H */
