/* SPDX-License-Identifier: GPL-2.0 */
/* Pseudo-random numbers that depend on the seed only. */
#ifndef WB_RND_H
#define WB_RND_H

#include <linux/types.h>

static __u64 rnd_state;

/* seed - not 0 */
static inline void rnd_seed(__u64 seed)
{
	rnd_state = seed * 0x9e3779b97f4a7c15ULL;
}

/* 0 ... below - 1, by xorshift64* */
static inline __u64 rnd(__u64 below)
{
	rnd_state ^= rnd_state >> 12;
	rnd_state ^= rnd_state << 25;
	rnd_state ^= rnd_state >> 27;
	return (rnd_state * 0x2545f4914f6cdd1dULL >> 16) % below;
}

#endif
