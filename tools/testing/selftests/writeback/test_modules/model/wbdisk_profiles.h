/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table of disks, for includes that say what WBD_PROFILE is: what the tests
 * call it, its name in full, its numbers.  A new disk is an entry here; the module,
 * the tests' --disk and "wb list" all take it from this file.
 */

/* What all disks have in common. */
#define ANY								\
	.capacity_mib = 16384,						\
	.seed = 1

/* Flash of a disk that has none: writing "model" alone gives one that works. */
#define SOME_FLASH							\
	.channels = 8, .dies_per_channel = 2, .channel_mbps = 400,	\
	.page_kib = 16, .prog_kib = 32,					\
	.t_read_ns = 60000, .t_prog_ns = 700000,			\
	.write_buffer_kib = 8192

/* Platters of a disk that has none, for the same reason. */
#define SOME_PLATTERS							\
	.rpm = 7200, .seek_min_ns = 1000000, .seek_avg_ns = 8500000,	\
	.media_mbps_outer = 180, .media_mbps_inner = 90,		\
	.readahead_kib = 2048, .age_limit_ms = 500

/*
 * One queue of 32 commands: NCQ.  168 segments: AHCI_MAX_SG.  1280 KiB:
 * BLK_DEF_MAX_SECTORS_CAP, what the block layer makes of libata's 32 MiB.
 */
#define NCQ								\
	.queues = 1, .queue_depth = 32, .max_segments = 168,		\
	.max_io_kib = 1280

/*
 * "assumed" marks a number that no data sheet gives; it was chosen so that the
 * whole disk comes near the published ones.
 */
/* A SATA TLC drive of about 250 GB, 2014 to 2018. */
WBD_PROFILE(sata, "sata-ssd",
	    ANY, SOME_PLATTERS, NCQ,
	    .model = WBD_MODEL_SSD,
	    /* Samsung 860 EVO data sheet: 550 read, 520 write */
	    .link_mbps = 530,
	    /* firmware, as NVMeVirt's 970 PRO: 21.5 us */
	    .latency_ns = 20000,
	    /* common; NVMeVirt has 8 x 2, too */
	    .channels = 8, .dies_per_channel = 2,
	    /* toggle DDR 2.0: 400 MT/s, 8 bits */
	    .channel_mbps = 400,
	    /* 16 KiB flash pages (3D TLC, all makers), two planes */
	    .page_kib = 16, .prog_kib = 32,
	    /* 3D TLC: tR 45 to 60 us (ISSCC 2015 to 2017) */
	    .t_read_ns = 60000,
	    /* ditto: tPROG 700 us; 16 dies: 750 MB/s, link bound */
	    .t_prog_ns = 700000,
	    /* assumed: the 512 MiB of DRAM hold the map */
	    .write_buffer_kib = 8192,
	    .write_cache = 1,	/* on by default in all */
	    .fua = 0,		/* libata.fua=0 by default */
	    .flush_drains = 1,	/* FLUSH CACHE EXT is not queued */
	    .discard = 1)

/*
 * A PCIe 3.0 drive with its flash scaled down: a test machine of
 * 1 instruction per ns could not keep 2 to 3 GB/s busy.
 */
WBD_PROFILE(nvme, "nvme-ssd",
	    ANY, SOME_PLATTERS,
	    .model = WBD_MODEL_SSD,
	    /* PCIe 3.0 x4, NVMeVirt's 970 PRO: 3360 MB/s */
	    .link_mbps = 3360,
	    .link_duplex = 1,	/* PCIe */
	    /* assumed: half of NVMeVirt's 21.5 us for all layers */
	    .latency_ns = 10000,
	    /* NVMeVirt's 970 PRO: 8 x 2 at 800 MB/s */
	    .channels = 8, .dies_per_channel = 2,
	    .channel_mbps = 800,
	    .page_kib = 16,
	    /* NVMeVirt: 32 KiB flash page, one shot */
	    .prog_kib = 32,
	    /* NVMeVirt's 970 PRO: 36 us */
	    .t_read_ns = 36000,
	    /* scaled: 16 dies x 32 KiB / 437 us = 1.2 GB/s (185 us) */
	    .t_prog_ns = 437000,
	    /* NVMeVirt: 8 x 2 x 32 KiB x 2; twice that for max_io */
	    .write_buffer_kib = 2048,
	    .write_cache = 1,	/* VWC of consumer drives */
	    .fua = 1,		/* mandatory in NVMe */
	    .queues = 0,		/* one per CPU, as the driver does */
	    /* nvme.io_queue_depth: 1024 less one */
	    .queue_depth = 1023,
	    /* NVME_MAX_SEGS of the driver */
	    .max_segments = 128,
	    /* MDTS 9 of a 970 PRO is 2 MiB; capped as all disks */
	    .max_io_kib = 1280,
	    .discard = 1)

/* A desktop drive of 1 TB, 7200 rpm. */
WBD_PROFILE(hdd, "hdd",
	    ANY, NCQ,
	    .model = WBD_MODEL_HDD,
	    .channels = 1, .dies_per_channel = 1,
	    .channel_mbps = 600, .page_kib = 4, .prog_kib = 4,
	    .link_mbps = 560,	/* SATA 6 Gb/s less framing */
	    .latency_ns = 100000,	/* assumed: firmware */
	    .rpm = 7200,		/* Seagate ST1000DM003 manual */
	    .seek_min_ns = 1000000,	/* ditto: track to track, read */
	    .seek_avg_ns = 8500000,	/* ditto: average, read */
	    /* ditto: 210 at most, 156 on average; so 100 inside */
	    .media_mbps_outer = 210, .media_mbps_inner = 100,
	    .readahead_kib = 2048,	/* assumed */
	    .age_limit_ms = 500,	/* assumed */
	    /* assumed share of the 64 MiB of RAM */
	    .write_buffer_kib = 8192,
	    .write_cache = 1,
	    .fua = 0,		/* libata.fua=0 by default */
	    .flush_drains = 1,
	    .rotational = 1)

/*
 * The reference, whose times can be checked by hand: everything
 * queued before, plus bytes / link, plus the latency.
 */
WBD_PROFILE(fifo, "fifo",
	    ANY, SOME_FLASH, SOME_PLATTERS, NCQ,
	    .model = WBD_MODEL_FIFO,
	    .link_mbps = 450,	/* a SATA SSD's real rate */
	    .latency_ns = 90000,	/* 4 KiB read: 99 us */
	    .fua = 1,		/* no cache, so not advertised */
	    .discard = 1)

/* A cheap stick: one die, one command at a time. */
WBD_PROFILE(usb, "usb-stick",
	    ANY, SOME_PLATTERS,
	    .model = WBD_MODEL_SSD,
	    /* USB 2.0 bulk: 53 MB/s by the book, 35 to 40 in life */
	    .link_mbps = 36,
	    /* assumed: three USB transactions per command */
	    .latency_ns = 300000,
	    .channels = 1, .dies_per_channel = 1,
	    .channel_mbps = 100,	/* assumed */
	    .page_kib = 16, .prog_kib = 32,
	    /* assumed, slow planar TLC */
	    .t_read_ns = 90000,
	    /* ditto: 32 KiB each, 14 MB/s less the link */
	    .t_prog_ns = 2300000,
	    /* assumed: what the controller holds of one command */
	    .write_buffer_kib = 128,
	    .write_cache = 0,	/* none is advertised */
	    /* usb-storage: can_queue 1, 240 sectors */
	    .queues = 1, .queue_depth = 1, .max_io_kib = 120,
	    .max_segments = 128)	/* SG_MAX_SEGMENTS */

#undef WBD_PROFILE
