/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The numbers of a disk, for includes that say what WBD_NUMBER is: name, lowest,
 * highest, and whether it can be written while the disk is on.
 */
WBD_NUMBER(capacity_mib, 1, 4194304, false);
WBD_NUMBER(store_mib, 1, 4194304, true);
WBD_NUMBER(link_mbps, 1, 100000, true);
WBD_NUMBER(link_duplex, 0, 1, false);
WBD_NUMBER(latency_ns, 0, 1000000000, false);
WBD_NUMBER(latency_jitter_ns, 0, 1000000000, false);
WBD_NUMBER(command_ns, 0, 1000000000, false);
WBD_NUMBER(burst_mib, 0, 1048576, false);
WBD_NUMBER(burst_mbps, 0, 100000, false);
WBD_NUMBER(channels, 1, 64, false);
WBD_NUMBER(dies_per_channel, 1, 64, false);
WBD_NUMBER(channel_mbps, 1, 100000, false);
WBD_NUMBER(page_kib, 1, 1024, false);
WBD_NUMBER(prog_kib, 4, 4096, false);
WBD_NUMBER(t_read_ns, 0, 1000000000, false);
WBD_NUMBER(t_prog_ns, 0, 1000000000, false);
WBD_NUMBER(slc_mib, 0, 1048576, false);
WBD_NUMBER(t_prog_full_ns, 0, 1000000000, false);
WBD_NUMBER(write_buffer_kib, 64, 1048576, false);
WBD_NUMBER(rpm, 1000, 20000, false);
WBD_NUMBER(seek_min_ns, 0, 100000000, false);
WBD_NUMBER(seek_avg_ns, 0, 100000000, false);
WBD_NUMBER(media_mbps_outer, 5, 10000, false);
WBD_NUMBER(media_mbps_inner, 5, 10000, false);
WBD_NUMBER(readahead_kib, 0, 65536, false);
WBD_NUMBER(age_limit_ms, 1, 100000, false);
WBD_NUMBER(write_cache, 0, 1, false);
WBD_NUMBER(fua, 0, 1, false);
WBD_NUMBER(flush_drains, 0, 1, false);
WBD_NUMBER(queues, 0, 1024, false);
WBD_NUMBER(queue_depth, 1, 1024, false);
WBD_NUMBER(max_segments, 1, 65535, false);
WBD_NUMBER(max_io_kib, 4, 65536, false);
WBD_NUMBER(rotational, 0, 1, false);
WBD_NUMBER(discard, 0, 1, false);
WBD_NUMBER(jitter_ppm, 0, 1000000, false);
WBD_NUMBER(seed, 0, U32_MAX, false);
WBD_NUMBER(lazy_cache, 0, 1, true);
WBD_NUMBER(cut_keep_ppm, 0, 1000000, true);
#undef WBD_NUMBER
