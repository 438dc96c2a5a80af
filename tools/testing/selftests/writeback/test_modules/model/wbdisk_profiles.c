// SPDX-License-Identifier: GPL-2.0
/* The profiles, and the checks that span several of its numbers. */
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/string.h>

#include "wbdisk_model.h"

const char *const wbd_model_names[WBD_NR_MODELS] = {
	[WBD_MODEL_FIFO] = "fifo",
	[WBD_MODEL_SSD] = "ssd",
	[WBD_MODEL_HDD] = "hdd",
};

#define WBD_PROFILE(_word, _name, ...)					\
	{ .word = #_word, .name = _name, .config = { __VA_ARGS__ } },

const struct wbd_profile wbd_profiles[] = {
#include "wbdisk_profiles.h"
};

const unsigned int wbd_nr_profiles = ARRAY_SIZE(wbd_profiles);

/**
 * wbd_config_load() - replace all numbers by those of a profile
 * @cfg: what to fill
 * @profile: its name
 *
 * store_mib is a quarter of the machine's memory.
 *
 * Return: 0, or -EINVAL if there is no such profile; @cfg is unchanged then.
 */
int wbd_config_load(struct wbd_config *cfg, const char *profile)
{
	unsigned int i;

	for (i = 0; i < wbd_nr_profiles; i++) {
		if (!sysfs_streq(wbd_profiles[i].name, profile) &&
		    !sysfs_streq(wbd_profiles[i].word, profile))
			continue;
		*cfg = wbd_profiles[i].config;
		cfg->profile = i;
		cfg->store_mib = max(totalram_pages() >> (20 - PAGE_SHIFT + 2), 1UL);
		return 0;
	}
	return -EINVAL;
}

/**
 * wbd_config_problem() - do the numbers make a disk together?
 * @cfg: each of them in its own range
 *
 * Return: NULL, or what is wrong.
 */
const char *wbd_config_problem(const struct wbd_config *cfg)
{
	if (cfg->model == WBD_MODEL_SSD &&
	    cfg->write_buffer_kib < 2 * cfg->prog_kib)
		return "write_buffer_kib must hold two units of prog_kib";
	if (cfg->model == WBD_MODEL_HDD && cfg->seek_avg_ns < cfg->seek_min_ns)
		return "seek_avg_ns is below seek_min_ns";
	return NULL;
}
