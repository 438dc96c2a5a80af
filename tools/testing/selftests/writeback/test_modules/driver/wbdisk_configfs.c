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

#include "wbdisk_numbers.h"

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
	wbd_settle(dev);
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

static struct configfs_attribute *wbd_others[] = {
	&wbd_attr_profile,
	&wbd_attr_power,
	&wbd_attr_model,
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

/* Of struct wbd_config, profile and model are among the others. */
static struct configfs_attribute *wbd_attrs[sizeof(struct wbd_config) / sizeof(u32) +
					    ARRAY_SIZE(wbd_others) - 2];

static void fill_attrs(void)
{
	int n = 0;

#define WBD_NUMBER(name, ...)	(wbd_attrs[n++] = &wbd_attr_##name)
#include "wbdisk_numbers.h"
	memcpy(&wbd_attrs[n], wbd_others, sizeof(wbd_others));
}

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
	dev = kzalloc_obj(*dev, GFP_KERNEL);
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

/* What disks there are, and what their files take. */
static ssize_t wbd_profiles_show(struct config_item *item, char *page)
{
	unsigned int i;
	int n = 0;

	for (i = 0; i < wbd_nr_profiles; i++)
		n += sysfs_emit_at(page, n, "%s %s\n", wbd_profiles[i].word,
				   wbd_profiles[i].name);
	return n;
}

CONFIGFS_ATTR_RO(wbd_, profiles);

static ssize_t wbd_ranges_show(struct config_item *item, char *page)
{
	int n = 0;

#define WBD_NUMBER(name, lo, hi, live)					\
	(n += sysfs_emit_at(page, n, "%s %u %u %s\n", #name, lo, hi,	\
			    live ? "live" : "off"))
#include "wbdisk_numbers.h"
	return n;
}

CONFIGFS_ATTR_RO(wbd_, ranges);

static struct configfs_attribute *wbd_group_attrs[] = {
	&wbd_attr_profiles,
	&wbd_attr_ranges,
	NULL,
};

static const struct config_item_type wbd_group_type = {
	.ct_group_ops = &wbd_group_ops,
	.ct_attrs = wbd_group_attrs,
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
	fill_attrs();
	config_group_init(&wbd_subsys.su_group);
	mutex_init(&wbd_subsys.su_mutex);
	return configfs_register_subsystem(&wbd_subsys);
}

void wbd_configfs_unregister(void)
{
	configfs_unregister_subsystem(&wbd_subsys);
}
