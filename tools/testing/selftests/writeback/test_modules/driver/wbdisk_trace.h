/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM wbdisk

#if !defined(_WBDISK_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _WBDISK_TRACE_H

#include <linux/blk-mq.h>
#include <linux/tracepoint.h>

#include "wbdisk_model.h"

/* Not enums: a trace event shows its op by these numbers. */
#define show_wbd_op(op)							\
	__print_symbolic(op, { 0, "read" }, { 1, "write" }, { 2, "flush" }, \
			 { 3, "discard" }, { 4, "zeroes" })

/* A command enters the device. */
TRACE_EVENT(wbdisk_queue,
	    TP_PROTO(struct gendisk *disk, const struct wbd_cmd *cmd, u64 ahead),
	    TP_ARGS(disk, cmd, ahead),
	    TP_STRUCT__entry(__field(dev_t, dev)
			     __field(u32, op)
			     __field(bool, fua)
			     __field(u64, sector)
			     __field(u32, bytes)
			     __field(u64, ahead_bytes)
	    ),
	    TP_fast_assign(__entry->dev = disk_devt(disk);
			   __entry->op = cmd->op;
			   __entry->fua = cmd->fua;
			   __entry->sector = cmd->sector;
			   __entry->bytes = cmd->bytes;
			   __entry->ahead_bytes = ahead;
	    ),
	    TP_printk("%d,%d %s%s %llu + %u bytes, %llu bytes of writes ahead",
		      MAJOR(__entry->dev), MINOR(__entry->dev),
		      show_wbd_op(__entry->op), __entry->fua ? " fua" : "",
		      __entry->sector, __entry->bytes, __entry->ahead_bytes)
);

/* A command leaves the device. */
TRACE_EVENT(wbdisk_complete,
	    TP_PROTO(struct gendisk *disk, const struct wbd_cmd *cmd, u64 ns,
		     int error),
	    TP_ARGS(disk, cmd, ns, error),
	    TP_STRUCT__entry(__field(dev_t, dev)
			     __field(u32, op)
			     __field(u64, sector)
			     __field(u32, bytes)
			     __field(u64, ns)
			     __field(int, error)
	    ),
	    TP_fast_assign(__entry->dev = disk_devt(disk);
			   __entry->op = cmd->op;
			   __entry->sector = cmd->sector;
			   __entry->bytes = cmd->bytes;
			   __entry->ns = ns;
			   __entry->error = error;
	    ),
	    TP_printk("%d,%d %s %llu + %u bytes after %llu ns error %d",
		      MAJOR(__entry->dev), MINOR(__entry->dev),
		      show_wbd_op(__entry->op), __entry->sector, __entry->bytes,
		      __entry->ns, __entry->error)
);

#endif /* _WBDISK_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE wbdisk_trace
#include <trace/define_trace.h>
