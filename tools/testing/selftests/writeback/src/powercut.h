/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What powercut_load knows about its files and powercut_verify holds against them.
 *
 * A file is a row of units.  Every 8 bytes of data say where they belong, so that a
 * block of another file, place or power cut is recognised.  A unit is "acked" with
 * the generation (number of the operation in its file) that the last fsync made
 * durable, 0 for zeros; each operation since may or may not be on the disk.
 */
#ifndef WB_POWERCUT_H
#define WB_POWERCUT_H

#include <linux/types.h>

#define PC_UNIT		512UL
#define PC_UNITS	3072UL		/* of a file: 1.5 MiB */
#define PC_OPS		128U		/* since the last fsync */
#define PC_WORDS	(PC_UNIT / 8)
#define PC_STALE	0xaaaaaaaaaaaaaaaaULL	/* what the disk was filled with */

/* 4 bits of tag, 12 of the cut, 14 of the file, 16 of the generation, 18 of the place */
#define PC_TAG		5ULL
#define PC_CUTS		4096U
#define PC_FILES	16384U
#define PC_GENS		65536U

static inline __u64 pc_word(__u64 cut, __u64 file, __u64 gen, __u64 word)
{
	return PC_TAG << 60 | cut << 48 | file << 34 | gen << 18 | word;
}

enum pc_kind { PC_WRITE, PC_ZERO, PC_SIZE };

/* An operation that no fsync has confirmed: units first ... last - 1 */
struct pc_op {
	__u32 gen, kind, first, last;
};

enum pc_life {
	PC_NEW,		/* made, not confirmed: may be there */
	PC_THERE,	/* must be there */
	PC_DOOMED,	/* unlinked, not confirmed: may be there */
	PC_GONE,	/* must not be there */
};

/* A record of the state file; sizes are in units */
struct pc_file {
	__u32 cut, id, life, gen;
	__u32 acked_size, size, min_size, max_size;
	__u32 nr_ops, acks;
	struct pc_op ops[PC_OPS];
	__u16 acked[PC_UNITS], now[PC_UNITS];
};

static inline void pc_name(char *buf, size_t len, const char *dir, unsigned int id)
{
	snprintf(buf, len, "%s/f%u", dir, id);
}

#endif
