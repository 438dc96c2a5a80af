/* SPDX-License-Identifier: GPL-2.0 */
/* What the kernel's files need of the kernel, and tools/include does not have. */
#ifndef WBLAW_SHIM_H
#define WBLAW_SHIM_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <linux/compiler.h>
#include <linux/types.h>
#include <linux/kernel.h>
#include <linux/sizes.h>

#ifndef U64_MAX
#define U64_MAX		((u64)~0ULL)
#endif
#ifndef U32_MAX
#define U32_MAX		((u32)~0U)
#endif
#define PAGE_SHIFT	12
#define PAGE_SIZE	(1UL << PAGE_SHIFT)
#define SECTOR_SHIFT	9

/* Those of tools/include cast the first operand of an expression only. */
#undef min_t
#undef max_t
#define min_t(type, x, y)	((type)(x) < (type)(y) ? (type)(x) : (type)(y))
#define max_t(type, x, y)	((type)(x) > (type)(y) ? (type)(x) : (type)(y))

#ifndef fallthrough
#define fallthrough	__attribute__((__fallthrough__))
#endif
#define EXPORT_SYMBOL_IF_KUNIT(symbol)

#ifndef min3
#define min3(x, y, z)	min(x, min(y, z))
#endif
#ifndef clamp
#define clamp(val, lo, hi)		min(max(val, lo), hi)
#endif
#ifndef clamp_t
#define clamp_t(type, val, lo, hi)	min_t(type, max_t(type, val, lo), hi)
#endif
#ifndef DIV_ROUND_UP_ULL
#define DIV_ROUND_UP_ULL(n, d)		(((n) + (d) - 1) / (d))
#endif

static inline u64 wblaw_mul_div(u64 a, u64 b, u64 c)
{
	return (u64)((unsigned __int128)a * b / c);
}

#define mul_u64_u64_div_u64(a, b, c)	wblaw_mul_div(a, b, c)
#define div_u64(n, d)			((u64)(n) / (u32)(d))
#define div64_u64(n, d)			((u64)(n) / (u64)(d))

static inline u64 div_u64_rem(u64 n, u32 d, u32 *rem)
{
	*rem = n % d;
	return n / d;
}

#define fls64(x)		wblaw_fls64(x)
#ifndef BIT_ULL
#define BIT_ULL(n)		(1ULL << (n))
#endif

static inline int wblaw_fls64(u64 x)
{
	return x ? 64 - __builtin_clzll(x) : 0;
}

#ifndef NSEC_PER_SEC
#define NSEC_PER_SEC	1000000000L
#endif
#define NSEC_PER_MSEC	1000000L
#define NSEC_PER_USEC	1000L

static inline u64 int_sqrt64(u64 x)
{
	u64 root = 0, bit;

	for (bit = 1ULL << 31; bit; bit >>= 1)
		if ((root + bit) * (root + bit) <= x)
			root += bit;
	return root;
}

#define GFP_KERNEL	0
#define kzalloc(size, gfp)	calloc(1, size)
#define kcalloc(n, size, gfp)	calloc(n, size)
#define kvcalloc(n, size, gfp)	calloc(n, size)
#define kfree(p)		free((void *)(p))
#define kvfree(p)		free((void *)(p))

#define num_possible_cpus()	1U
#define totalram_pages()	(1UL << 20)

static inline bool sysfs_streq(const char *a, const char *b)
{
	return !strcmp(a, b);
}

/* The same generator as lib/random32.c: L'Ecuyer's combination of four LFSRs. */
struct rnd_state {
	u32 s1, s2, s3, s4;
};

static inline u32 prandom_u32_state(struct rnd_state *s)
{
#define LFSR(s, a, b, c, d)	((((s) & (c)) << (d)) ^ ((((s) << (a)) ^ (s)) >> (b)))
	s->s1 = LFSR(s->s1, 6U, 13U, 4294967294U, 18U);
	s->s2 = LFSR(s->s2, 2U, 27U, 4294967288U, 2U);
	s->s3 = LFSR(s->s3, 13U, 21U, 4294967280U, 7U);
	s->s4 = LFSR(s->s4, 3U, 12U, 4294967168U, 13U);
#undef LFSR
	return s->s1 ^ s->s2 ^ s->s3 ^ s->s4;
}

static inline void prandom_seed_state(struct rnd_state *s, u64 seed)
{
	u32 i = ((seed >> 32) ^ (seed << 10) ^ seed) & 0xffffffffUL;

	s->s1 = i < 2U ? i + 2U : i;
	s->s2 = i < 8U ? i + 8U : i;
	s->s3 = i < 16U ? i + 16U : i;
	s->s4 = i < 128U ? i + 128U : i;
}

/* The least power of two that is not less than n. */
static inline unsigned long roundup_pow_of_two(unsigned long n)
{
	return n < 2 ? 1 : 1UL << (64 - __builtin_clzl(n - 1));
}

/* The greatest that is not more. */
static inline unsigned long rounddown_pow_of_two(unsigned long n)
{
	return 1UL << (63 - __builtin_clzl(n));
}

#endif
