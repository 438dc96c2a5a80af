// SPDX-License-Identifier: GPL-2.0
/* /sys/kernel/config/wbdisk/NAME: one directory per disk. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ctype.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "wbdisk.h"
#include "wbdisk_compat.h"

static struct wbd_dev *dev_of(struct config_item *item)
{
	return container_of(item, struct wbd_dev, item);
}

/* ---- numbers ------------------------------------------------------------- */

static ssize_t store_number(struct wbd_dev *dev, const char *page, size_t count,
			    const char *name, u32 *member, u32 lo, u32 hi,
			    bool live)
{
	unsigned long flags;
	ssize_t err = count;
	u32 value;

	if (kstrtou32(page, 10, &value) || value < lo || value > hi) {
		pr_warn_ratelimited("%s: %s must be from %u to %u\n",
				    wbd_name(dev), name, lo, hi);
		return -EINVAL;
	}
	mutex_lock(&dev->config_lock);
	/* The data is there until the directory goes, and so is its size. */
	if ((dev->disk && !live) ||
	    (member == &dev->cfg.capacity_mib && dev->store.leaf)) {
		err = -EBUSY;
	} else {
		/* Up to now the old value holds. */
		wbd_settle(dev);
		spin_lock_irqsave(&dev->lock, flags);
		*member = value;
		dev->store.cap = (u64)dev->cfg.store_mib << (20 - PAGE_SHIFT);
		spin_unlock_irqrestore(&dev->lock, flags);
		wbd_settle(dev);
	}
	mutex_unlock(&dev->config_lock);
	return err;
}

#define WBD_NUMBER(name, lo, hi, live)					\
static u32 *name##_of(struct config_item *item)				\
{									\
	return &dev_of(item)->cfg.name;					\
}									\
static ssize_t name##_show(struct config_item *item, char *page)	\
{									\
	return sysfs_emit(page, "%u\n", *name##_of(item));		\
}									\
static ssize_t name##_store(struct config_item *item, const char *page,	\
			    size_t count)				\
{									\
	return store_number(dev_of(item), page, count, #name,		\
			    name##_of(item), lo, hi, live);		\
}									\
static struct configfs_attribute wbd_attr_##name = {			\
	.ca_name = #name,						\
	.ca_mode = 0644,						\
	.ca_owner = THIS_MODULE,					\
	.show = name##_show,						\
	.store = name##_store,						\
}

/* name, lowest, highest, writable while the disk is on */
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

/* ---- names --------------------------------------------------------------- */

static ssize_t wbd_profile_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n",
			  wbd_profiles[dev_of(item)->cfg.profile].name);
}

static ssize_t wbd_profile_store(struct config_item *item, const char *page,
				 size_t count)
{
	struct wbd_dev *dev = dev_of(item);
	int err = -EBUSY;

	mutex_lock(&dev->config_lock);
	if (!dev->disk) {
		u32 capacity = dev->cfg.capacity_mib;

		err = wbd_config_load(&dev->cfg, page);
		if (dev->store.leaf)
			dev->cfg.capacity_mib = capacity;
	}
	mutex_unlock(&dev->config_lock);
	if (err == -EINVAL)
		pr_warn_ratelimited("%s: no such profile\n", wbd_name(dev));
	return err ?: count;
}

CONFIGFS_ATTR(wbd_, profile);

static ssize_t wbd_model_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%s\n", wbd_model_names[dev_of(item)->cfg.model]);
}

static ssize_t wbd_model_store(struct config_item *item, const char *page,
			       size_t count)
{
	struct wbd_dev *dev = dev_of(item);
	int err = -EBUSY, model = __sysfs_match_string(wbd_model_names,
						       WBD_NR_MODELS, page);

	if (model < 0) {
		pr_warn_ratelimited("%s: model must be fifo, ssd or hdd\n",
				    wbd_name(dev));
		return -EINVAL;
	}
	mutex_lock(&dev->config_lock);
	if (!dev->disk) {
		dev->cfg.model = model;
		err = 0;
	}
	mutex_unlock(&dev->config_lock);
	return err ?: count;
}

CONFIGFS_ATTR(wbd_, model);

/* ---- power and tests ----------------------------------------------------- */

static ssize_t wbd_power_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%d\n", !!dev_of(item)->disk);
}

static ssize_t wbd_power_store(struct config_item *item, const char *page,
			       size_t count)
{
	struct wbd_dev *dev = dev_of(item);
	bool on;
	int err = kstrtobool(page, &on);

	if (err)
		return err;
	mutex_lock(&dev->config_lock);
	if (on && !dev->disk)
		err = wbd_power_on(dev);
	else if (!on && dev->disk)
		wbd_power_off(dev);
	mutex_unlock(&dev->config_lock);
	return err ?: count;
}

CONFIGFS_ATTR(wbd_, power);

static ssize_t wbd_stall_ms_show(struct config_item *item, char *page)
{
	u64 until = READ_ONCE(dev_of(item)->stall_until);
	u64 now = ktime_get_ns();

	return sysfs_emit(page, "%llu\n", until <= now ? 0 :
			  DIV_ROUND_UP_ULL(until - now, NSEC_PER_MSEC));
}

static ssize_t wbd_stall_ms_store(struct config_item *item, const char *page,
				  size_t count)
{
	struct wbd_dev *dev = dev_of(item);
	int err = 0;
	u32 ms;

	/* An hour: longer is a typing error. */
	if (kstrtou32(page, 10, &ms) || ms > 3600000)
		return -EINVAL;
	mutex_lock(&dev->config_lock);
	if (dev->disk)
		wbd_stall(dev, (u64)ms * NSEC_PER_MSEC);
	else
		err = -ENODEV;
	mutex_unlock(&dev->config_lock);
	return err ?: count;
}

CONFIGFS_ATTR(wbd_, stall_ms);

static ssize_t wbd_cut_show(struct config_item *item, char *page)
{
	return sysfs_emit(page, "%llu\n", READ_ONCE(dev_of(item)->cuts));
}

static ssize_t wbd_cut_store(struct config_item *item, const char *page,
			     size_t count)
{
	struct wbd_dev *dev = dev_of(item);
	bool cut;
	int err = kstrtobool(page, &cut);

	if (err || !cut)
		return -EINVAL;
	mutex_lock(&dev->config_lock);
	if (dev->disk)
		wbd_cut(dev);
	else
		err = -ENODEV;
	mutex_unlock(&dev->config_lock);
	return err ?: count;
}

CONFIGFS_ATTR(wbd_, cut);

static ssize_t fault_show(struct wbd_dev *dev, const struct wbd_fault *fault,
			  char *page, bool range)
{
	struct wbd_fault copy;

	spin_lock_irq(&dev->lock);
	copy = *fault;
	spin_unlock_irq(&dev->lock);
	return wbd_fault_show(&copy, page, range);
}

static void fault_set(struct wbd_dev *dev, struct wbd_fault *fault,
		      const struct wbd_fault *value)
{
	spin_lock_irq(&dev->lock);
	*fault = *value;
	spin_unlock_irq(&dev->lock);
}

static ssize_t wbd_fail_range_show(struct config_item *item, char *page)
{
	return fault_show(dev_of(item), &dev_of(item)->fail_range, page, true);
}

static ssize_t wbd_fail_range_store(struct config_item *item, const char *page,
				    size_t count)
{
	struct wbd_fault fault;
	int err = wbd_fault_parse_range(&fault, page);

	if (err)
		return err;
	fault_set(dev_of(item), &dev_of(item)->fail_range, &fault);
	return count;
}

CONFIGFS_ATTR(wbd_, fail_range);

static ssize_t wbd_fail_nth_show(struct config_item *item, char *page)
{
	return fault_show(dev_of(item), &dev_of(item)->fail_nth, page, false);
}

static ssize_t wbd_fail_nth_store(struct config_item *item, const char *page,
				  size_t count)
{
	struct wbd_fault fault;
	int err = wbd_fault_parse_nth(&fault, page);

	if (err)
		return err;
	fault_set(dev_of(item), &dev_of(item)->fail_nth, &fault);
	return count;
}

CONFIGFS_ATTR(wbd_, fail_nth);

/* ---- what happened ------------------------------------------------------- */

static ssize_t wbd_counters_show(struct config_item *item, char *page)
{
	struct wbd_dev *dev = dev_of(item);
	ssize_t n;

	mutex_lock(&dev->config_lock);
	n = wbd_stats_show(dev, page);
	mutex_unlock(&dev->config_lock);
	return n;
}

static struct configfs_attribute wbd_attr_stats = {
	.ca_name = "stats",
	.ca_mode = 0444,
	.ca_owner = THIS_MODULE,
	.show = wbd_counters_show,
};

static ssize_t wbd_reset_stats_store(struct config_item *item, const char *page,
				     size_t count)
{
	bool reset;

	if (kstrtobool(page, &reset) || !reset)
		return -EINVAL;
	wbd_stats_reset(dev_of(item));
	return count;
}

CONFIGFS_ATTR_WO(wbd_, reset_stats);

static ssize_t wbd_hist_read_show(struct config_item *item, char *page)
{
	return wbd_hist_show(dev_of(item), WBD_HIST_READ, page);
}

CONFIGFS_ATTR_RO(wbd_, hist_read);

static ssize_t wbd_hist_write_show(struct config_item *item, char *page)
{
	return wbd_hist_show(dev_of(item), WBD_HIST_WRITE, page);
}

CONFIGFS_ATTR_RO(wbd_, hist_write);

static ssize_t wbd_hist_flush_show(struct config_item *item, char *page)
{
	return wbd_hist_show(dev_of(item), WBD_HIST_FLUSH, page);
}

CONFIGFS_ATTR_RO(wbd_, hist_flush);

static ssize_t wbd_hist_ahead_show(struct config_item *item, char *page)
{
	return wbd_hist_show(dev_of(item), WBD_HIST_AHEAD, page);
}

CONFIGFS_ATTR_RO(wbd_, hist_ahead);

/* ---- directories --------------------------------------------------------- */

static struct configfs_attribute *wbd_attrs[] = {
	&wbd_attr_profile,
	&wbd_attr_power,
	&wbd_attr_model,
	&wbd_attr_capacity_mib,
	&wbd_attr_store_mib,
	&wbd_attr_link_mbps,
	&wbd_attr_link_duplex,
	&wbd_attr_latency_ns,
	&wbd_attr_latency_jitter_ns,
	&wbd_attr_command_ns,
	&wbd_attr_burst_mib,
	&wbd_attr_burst_mbps,
	&wbd_attr_channels,
	&wbd_attr_dies_per_channel,
	&wbd_attr_channel_mbps,
	&wbd_attr_page_kib,
	&wbd_attr_prog_kib,
	&wbd_attr_t_read_ns,
	&wbd_attr_t_prog_ns,
	&wbd_attr_slc_mib,
	&wbd_attr_t_prog_full_ns,
	&wbd_attr_write_buffer_kib,
	&wbd_attr_rpm,
	&wbd_attr_seek_min_ns,
	&wbd_attr_seek_avg_ns,
	&wbd_attr_media_mbps_outer,
	&wbd_attr_media_mbps_inner,
	&wbd_attr_readahead_kib,
	&wbd_attr_age_limit_ms,
	&wbd_attr_write_cache,
	&wbd_attr_fua,
	&wbd_attr_flush_drains,
	&wbd_attr_queues,
	&wbd_attr_queue_depth,
	&wbd_attr_max_segments,
	&wbd_attr_max_io_kib,
	&wbd_attr_rotational,
	&wbd_attr_discard,
	&wbd_attr_jitter_ppm,
	&wbd_attr_seed,
	&wbd_attr_lazy_cache,
	&wbd_attr_cut_keep_ppm,
	&wbd_attr_stall_ms,
	&wbd_attr_cut,
	&wbd_attr_fail_range,
	&wbd_attr_fail_nth,
	&wbd_attr_stats,
	&wbd_attr_reset_stats,
	&wbd_attr_hist_read,
	&wbd_attr_hist_write,
	&wbd_attr_hist_flush,
	&wbd_attr_hist_ahead,
	NULL,
};

static void wbd_release(struct config_item *item)
{
	struct wbd_dev *dev = dev_of(item);

	wbd_store_destroy(&dev->store);
	kfree(dev);
}

static struct configfs_item_operations wbd_item_ops = {
	.release = wbd_release,
};

static const struct config_item_type wbd_item_type = {
	.ct_item_ops = &wbd_item_ops,
	.ct_attrs = wbd_attrs,
	.ct_owner = THIS_MODULE,
};

static struct config_item *wbd_make_item(struct config_group *group,
					 const char *name)
{
	struct wbd_dev *dev;
	const char *c;

	for (c = name; *c; c++)
		if (!isascii(*c) || (!isalnum(*c) && *c != '-' && *c != '_'))
			return ERR_PTR(-EINVAL);
	if (c - name > WBD_NAME_MAX)
		return ERR_PTR(-ENAMETOOLONG);
	dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	if (!dev)
		return ERR_PTR(-ENOMEM);
	mutex_init(&dev->config_lock);
	spin_lock_init(&dev->lock);
	spin_lock_init(&dev->store.lock);
	INIT_LIST_HEAD(&dev->store.cached);
	INIT_LIST_HEAD(&dev->active);
	dev->armed = WBD_NEVER;
	hrtimer_setup(&dev->timer, wbd_timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	wbd_config_load(&dev->cfg, "fifo");
	config_item_init_type_name(&dev->item, name, &wbd_item_type);
	return &dev->item;
}

/* configfs cannot refuse this: whoever uses the disk gets I/O errors. */
static void wbd_drop_item(struct config_group *group, struct config_item *item)
{
	struct wbd_dev *dev = dev_of(item);

	mutex_lock(&dev->config_lock);
	if (dev->disk)
		wbd_power_off(dev);
	mutex_unlock(&dev->config_lock);
	config_item_put(item);
}

static struct configfs_group_operations wbd_group_ops = {
	.make_item = wbd_make_item,
	.drop_item = wbd_drop_item,
};

static const struct config_item_type wbd_group_type = {
	.ct_group_ops = &wbd_group_ops,
	.ct_owner = THIS_MODULE,
};

static struct configfs_subsystem wbd_subsys = {
	.su_group = {
		.cg_item = {
			.ci_namebuf = KBUILD_MODNAME,
			.ci_type = &wbd_group_type,
		},
	},
};

int wbd_configfs_register(void)
{
	config_group_init(&wbd_subsys.su_group);
	mutex_init(&wbd_subsys.su_mutex);
	return configfs_register_subsystem(&wbd_subsys);
}

void wbd_configfs_unregister(void)
{
	configfs_unregister_subsystem(&wbd_subsys);
}
