// SPDX-License-Identifier: GPL-2.0
/*
 * Random work on files until the power is cut, and what must be there afterwards.
 *
 *	powercut_load DIR STATE CUT SEED WRITERS MS [CUTFILE [FAULT]]
 *
 * WRITERS processes change files of their own below DIR: write, overwrite, append,
 * through mmap and O_DIRECT, too; truncate, punch, zero, fallocate, unlink; fsync,
 * fdatasync, syncfs, sync_file_range; sometimes one is read behind the page cache
 * after its fsync, and must be what was written.  After MS milliseconds "1" is written to
 * CUTFILE, which cuts the power; without CUTFILE they sync all and stop, and until
 * then blocks are inserted and collapsed again, too.  With FAULT, that is written to
 * CUTFILE: from then on some accesses fail, and the work goes on for as long again with
 * other files than those that had an error.  "@N" in FAULT is replaced by the sector
 * that is N in front of one of the files' blocks.  Each then writes what it knows to
 * STATE.N, in a file system that survives.  CUT is part of all data (powercut.h).
 *
 * Prints FAULT, how often each operation worked, and "ops N acks N files N", and exits
 * 0; 1 with a line if anything failed while the power was on, or went on for a minute
 * after it; 2 on bad usage.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../../kselftest.h"
#include "powercut.h"
#include "rnd.h"

#define SLOTS		5		/* files of a writer at a time */
#define FILES		64		/* in all */
#define MAX_UNITS	256		/* of a write */
#define MAX_PAUSE_US	3000
#define MAX_LOG_US	50000
#define PATIENCE_S	60
#define SHIFT		16384		/* bytes, bigalloc's clusters in the cases */

#define SOUGHT		64		/* files looked at for a block */
#define EXTENTS		32		/* of each */

enum kind {
	WRITE, DIRECT, LOG, STORE, TRUNCATE, PUNCH, ZERO, ALLOCATE, INSERT, COLLAPSE,
	UNLINK, RANGE, FSYNC, FDATASYNC, SYNCFS, REREAD, KINDS
};

static const char *const kinds[KINDS] = {
	"write", "direct", "log", "store", "truncate", "punch", "zero", "allocate",
	"insert", "collapse", "unlink", "range", "fsync", "fdatasync", "syncfs", "reread",
};

/* Shared by all writers */
static struct shared {
	volatile int cut, stop, fault;
	unsigned long ops, acks, files, worked[KINDS];
} *shared;

static const char *dir;
static unsigned int writer, cut_number;
static int may_shift;
static struct pc_file *files;
static int nr_files, slot[SLOTS], fds[SLOTS];
static __u64 *buf, *back;
static sigjmp_buf bus;

static void nothing_left(int sig)
{
	(void)sig;
	siglongjmp(bus, 1);
}

/* An error ends the work; before the power is cut there must be none. */
static int failed(const struct pc_file *f, const char *what)
{
	if (shared->cut)
		return -1;
	printf("file %u: %s: %s, before the power was cut\n", f->id, what, strerror(errno));
	exit(1);
}

/* The operation may be done in part, or not, by the time of the cut. */
static void pending(struct pc_file *f, enum pc_kind kind, __u32 first, __u32 last)
{
	f->gen++;
	f->ops[f->nr_ops++] = (struct pc_op){ f->gen, kind, first, last };
}

static void resize(struct pc_file *f, __u32 size)
{
	f->size = size;
	if (size > f->max_size)
		f->max_size = size;
	if (size < f->min_size)
		f->min_size = size;
}

static void confirm(struct pc_file *f)
{
	memcpy(f->acked, f->now, sizeof(f->acked));
	f->acked_size = f->size;
	f->min_size = f->size;
	f->max_size = f->size;
	f->nr_ops = 0;
	f->acks++;
	f->life = PC_THERE;
	shared->acks++;
}

static int begin(int s)
{
	struct pc_file *f = &files[nr_files];
	char path[4096];

	if (nr_files == FILES)
		return -1;
	slot[s] = nr_files++;
	f->cut = cut_number;
	f->id = writer * FILES + slot[s];
	f->life = PC_NEW;
	shared->files++;
	pc_name(path, sizeof(path), dir, f->id);
	fds[s] = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
	return fds[s] < 0 ? failed(f, "create") : 0;
}

static int replace(int s)
{
	struct pc_file *f = &files[slot[s]];
	char path[4096];

	pc_name(path, sizeof(path), dir, f->id);
	f->life = PC_DOOMED;
	close(fds[s]);
	if (unlink(path))
		return failed(f, "unlink");
	shared->worked[UNLINK]++;
	return begin(s);
}

static void fill(const struct pc_file *f, __u32 first, __u32 units)
{
	__u64 i;

	for (i = 0; i < units * PC_WORDS; i++)
		buf[i] = pc_word(f->cut, f->id, f->gen, first * PC_WORDS + i);
}

/* No room is no failure, but nobody knows how far it came: another file then. */
static int no_room(int s, const char *what)
{
	if (errno != ENOSPC && errno != EDQUOT)
		return failed(&files[slot[s]], what);
	return replace(s);
}

static void set_now(struct pc_file *f, __u32 first, __u32 last, __u16 gen)
{
	for (; first < last; first++)
		f->now[first] = gen;
}

static int op_write(int s, __u32 first, __u32 units, int direct)
{
	struct pc_file *f = &files[slot[s]];
	size_t len = units * PC_UNIT, done = 0;
	ssize_t n = 0;

	pending(f, PC_WRITE, first, first + units);
	fill(f, first, units);
	if (first + units > f->max_size)
		f->max_size = first + units;
	if (direct)
		fcntl(fds[s], F_SETFL, O_DIRECT);
	while (done < len) {
		n = pwrite(fds[s], (char *)buf + done, len - done, first * PC_UNIT + done);
		if (n <= 0)
			break;
		done += n;
	}
	if (direct)
		fcntl(fds[s], F_SETFL, 0);
	if (done < len)
		return no_room(s, "write");
	shared->worked[direct ? DIRECT : WRITE]++;
	set_now(f, first, first + units, f->gen);
	if (first + units > f->size)
		resize(f, first + units);
	return 0;
}

/* As logs are written: append, send it off, change a part while it is on its way. */
static int op_log(int s, __u32 units)
{
	struct pc_file *f = &files[slot[s]];
	__u32 first = f->size, at = first + rnd(units);
	int ret;

	if (first >= PC_UNITS - MAX_UNITS)
		return 0;
	ret = op_write(s, first, units, 0);
	/* No room, another file */
	if (ret || f != &files[slot[s]])
		return ret;
	sync_file_range(fds[s], first * PC_UNIT, units * PC_UNIT, SYNC_FILE_RANGE_WRITE);
	usleep(rnd(MAX_LOG_US));
	ret = op_write(s, at, 1 + rnd(first + units - at), 0);
	if (!ret && f == &files[slot[s]])
		shared->worked[LOG]++;
	return ret;
}

static int op_truncate(int s, __u32 size)
{
	struct pc_file *f = &files[slot[s]];

	pending(f, PC_ZERO, size, PC_UNITS);
	set_now(f, size, PC_UNITS, 0);
	resize(f, size);
	if (ftruncate(fds[s], size * PC_UNIT))
		return no_room(s, "truncate");
	shared->worked[TRUNCATE]++;
	return 0;
}

static int op_fallocate(int s, int mode, __u32 first, __u32 units)
{
	struct pc_file *f = &files[slot[s]];
	int zero = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE);

	pending(f, zero ? PC_ZERO : PC_SIZE, first, first + units);
	if (zero)
		set_now(f, first, first + units, 0);
	if (!(mode & FALLOC_FL_KEEP_SIZE) && first + units > f->size)
		resize(f, first + units);
	if (fallocate(fds[s], mode, first * PC_UNIT, units * PC_UNIT))
		return no_room(s, "fallocate");
	shared->worked[!zero ? ALLOCATE : mode & FALLOC_FL_PUNCH_HOLE ? PUNCH : ZERO]++;
	return 0;
}

/*
 * Blocks move to higher offsets and back.  A power cut between the two would leave
 * them at other places than their data says.
 */
static int op_shift(int s, __u32 first, __u32 units)
{
	off_t at = first * PC_UNIT / SHIFT * SHIFT;
	off_t len = (1 + units * PC_UNIT / SHIFT) * SHIFT;

	if (at >= (off_t)(files[slot[s]].size * PC_UNIT))
		return 0;
	if (fallocate(fds[s], FALLOC_FL_INSERT_RANGE, at, len))
		return errno == EOPNOTSUPP ? 0 : no_room(s, "insert range");
	shared->worked[INSERT]++;
	if (fallocate(fds[s], FALLOC_FL_COLLAPSE_RANGE, at, len))
		return no_room(s, "collapse range");
	shared->worked[COLLAPSE]++;
	return 0;
}

/* 1 if a fault could not be served */
static int store(char *to, size_t len)
{
	if (sigsetjmp(bus, 1))
		return 1;
	memcpy(to, buf, len);
	return 0;
}

/* Only where blocks are: a fault without room is a SIGBUS, as one without power. */
static int op_mmap(int s, __u32 first, __u32 units)
{
	struct pc_file *f = &files[slot[s]];
	size_t page = sysconf(_SC_PAGESIZE), at, len;
	char *map;
	int lost;

	if (first >= f->size)
		return 0;
	if (units > f->size - first)
		units = f->size - first;
	if (op_fallocate(s, FALLOC_FL_KEEP_SIZE, first / 8 * 8, (units + 15) / 8 * 8))
		return -1;
	f = &files[slot[s]];
	if (first + units > f->size)	/* no room, another file */
		return 0;
	at = first * PC_UNIT / page * page;
	len = (first + units) * PC_UNIT - at;
	map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fds[s], at);
	if (map == MAP_FAILED)
		return failed(f, "mmap");
	pending(f, PC_WRITE, first, first + units);
	fill(f, first, units);
	lost = store(map + first * PC_UNIT - at, units * PC_UNIT);
	if (!lost) {
		set_now(f, first, first + units, f->gen);
		shared->worked[STORE]++;
	}
	munmap(map, len);
	errno = EFAULT;
	return lost ? failed(f, "store to a mapping") : 0;
}

/*
 * syncfs() tells an error once, and a file opened later of none before it.  What was
 * written to a file and failed, this tells who has it open, and writes nothing.
 */
static int leave_failed(void)
{
	int s;

	for (s = 0; s < SLOTS; s++)
		if (sync_file_range(fds[s], 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE) &&
		    (shared->fault ? replace(s) : no_room(s, "writeback")))
			return -1;
	return 0;
}

static int op_sync(int s, int kind)
{
	int i;

	if (kind == 0) {
		if (syncfs(fds[s]) && !shared->fault && errno != ENOSPC)
			return failed(&files[slot[s]], "syncfs");
		if (leave_failed())
			return -1;
		if (syncfs(fds[s]))
			return 0;
		shared->worked[SYNCFS]++;
		for (i = 0; i < nr_files; i++) {
			if (files[i].life == PC_DOOMED || files[i].life == PC_GONE)
				files[i].life = PC_GONE;
			else
				confirm(&files[i]);
		}
		return 0;
	}
	if (kind < 4 ? fdatasync(fds[s]) : fsync(fds[s]))
		return no_room(s, "fsync");
	shared->worked[kind < 4 ? FDATASYNC : FSYNC]++;
	confirm(&files[slot[s]]);
	return 0;
}

/* Sync the file and read it behind the page cache: all of it must be there. */
static int op_reread(int s)
{
	struct pc_file *f = &files[slot[s]];
	size_t done = 0, len = f->size * PC_UNIT;
	ssize_t n = 0;
	__u64 at;

	if (op_sync(s, 4))
		return -1;
	if (f != &files[slot[s]])
		return 0;
	posix_fadvise(fds[s], 0, 0, POSIX_FADV_DONTNEED);
	while (done < len) {
		n = pread(fds[s], (char *)back + done, len - done, done);
		if (n <= 0)
			break;
		done += n;
	}
	if (done < len)
		return failed(f, n ? "read" : "end of file");
	for (at = 0; at < len / 8; at++) {
		__u64 gen = f->now[at / PC_WORDS];

		if (back[at] == (gen ? pc_word(f->cut, f->id, gen, at) : 0))
			continue;
		if (shared->cut)
			return -1;
		printf("file %u, offset %llu of %zu: %#llx, not of operation %llu, after fsync\n",
		       f->id, at * 8, len, back[at], gen);
		exit(1);
	}
	shared->worked[REREAD]++;
	return 0;
}

static int step(int s)
{
	struct pc_file *f = &files[slot[s]];
	__u32 units = 1 + rnd(2U << rnd(8)), first = rnd(f->size + f->size / 4 + 16);

	shared->ops++;
	/* Room for the two operations of op_mmap() and op_log(). */
	if (f->nr_ops + 2 > PC_OPS || f->gen + 2 > PC_GENS - 1)
		return f->gen + 2 > PC_GENS - 1 ? replace(s) : op_sync(s, 4);
	if (rnd(2)) {	/* whole pages */
		first = first / 8 * 8;
		units = (units + 7) / 8 * 8;
	}
	if (units > MAX_UNITS)
		units = MAX_UNITS;
	if (first > PC_UNITS - MAX_UNITS - 16)
		first = rnd(PC_UNITS - MAX_UNITS - 16);
	switch (rnd(32)) {
	case 0 ... 3:
		return op_write(s, first, units, 0);
	case 4 ... 6:
		return op_log(s, units);
	case 7 ... 12:
		return op_write(s, f->size < PC_UNITS - MAX_UNITS ? f->size : first, units, 0);
	case 13 ... 14:
		return op_write(s, first, units, 1);
	case 15 ... 16:
		return op_truncate(s, rnd(2) ? first : rnd(f->size + 1));
	case 17 ... 18:
		return op_fallocate(s, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first, units);
	case 19:
		return op_fallocate(s, FALLOC_FL_ZERO_RANGE |
				    (rnd(2) ? FALLOC_FL_KEEP_SIZE : 0), first, units);
	case 20 ... 21:
		return op_fallocate(s, rnd(2) ? FALLOC_FL_KEEP_SIZE : 0, first, units);
	case 22 ... 23:
		return op_mmap(s, first, units);
	case 24:
		if (!sync_file_range(fds[s], 0, 0, SYNC_FILE_RANGE_WRITE))
			shared->worked[RANGE]++;
		return 0;
	case 25:
		if (rnd(2))
			return replace(s);
		return may_shift ? op_shift(s, first, units) : 0;
	case 26:
		return rnd(4) ? 0 : op_reread(s);
	default:
		/* Every second writer syncs rarely: its files depend on flushers. */
		return (writer + cut_number / 2) % 2 && rnd(8) ? 0 : op_sync(s, rnd(20));
	}
}

static void dump(const char *state)
{
	char path[4096];
	FILE *out;

	snprintf(path, sizeof(path), "%s.%u", state, writer);
	out = fopen(path, "w");
	if (!out || fwrite(files, sizeof(*files), nr_files, out) != (size_t)nr_files ||
	    fclose(out)) {
		printf("%s: %s\n", path, strerror(errno));
		exit(1);
	}
}

static void work(const char *state, __u64 seed)
{
	int s, going = 1;

	rnd_seed(seed * 64 + writer + 1);
	files = calloc(FILES, sizeof(*files));
	buf = aligned_alloc(4096, MAX_UNITS * PC_UNIT);
	back = malloc(PC_UNITS * PC_UNIT);
	if (!files || !buf || !back) {
		printf("no memory\n");
		exit(1);
	}
	signal(SIGBUS, nothing_left);
	for (s = 0; s < SLOTS && going; s++)
		going = !begin(s);
	while (going && !shared->stop) {
		usleep(rnd(MAX_PAUSE_US));
		s = rnd(SLOTS);
		going = !step(s) || (shared->fault && !replace(s));
	}
	/* Without a cut all of it must be there, not only what was synced. */
	if (going)
		op_sync(0, 0);
	dump(state);
	exit(0);
}

static void pause_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

/* One of the files below DIR, -1 without any. */
static int any_file(void)
{
	struct dirent *e;
	char path[4096];
	int n = 0;
	DIR *d;

	path[0] = 0;
	d = opendir(dir);
	while (d && (e = readdir(d)))
		if (e->d_name[0] == 'f' && !rnd(++n))
			snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
	if (d)
		closedir(d);
	return path[0] ? open(path, O_RDONLY) : -1;
}

/* A sector of the disk that a file has, 0 if none of those looked at has any. */
static __u64 sector_in_use(void)
{
	struct fiemap *map = malloc(sizeof(*map) + EXTENTS * sizeof(map->fm_extents[0]));
	const struct fiemap_extent *e;
	__u64 found = 0;
	__u32 i, n = 0;
	int tries, fd;

	for (tries = 0; map && !found && tries < SOUGHT; tries++) {
		memset(map, 0, sizeof(*map));
		map->fm_length = FIEMAP_MAX_OFFSET;
		map->fm_extent_count = EXTENTS;
		fd = any_file();
		if (fd < 0)
			continue;
		if (ioctl(fd, FS_IOC_FIEMAP, map))
			map->fm_mapped_extents = 0;
		close(fd);
		for (i = 0; i < map->fm_mapped_extents; i++) {
			e = &map->fm_extents[i];
			if (!(e->fe_flags & (FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DATA_INLINE)) &&
			    !rnd(++n))
				found = (e->fe_physical + rnd(e->fe_length)) / 512;
		}
	}
	free(map);
	return found;
}

/* FAULT with a sector in place of "@N". */
static void place_fault(char *value, size_t size, const char *fault)
{
	const char *at = strchr(fault, '@');
	__u64 before, sector;
	char *rest;

	if (!at) {
		snprintf(value, size, "%s", fault);
		return;
	}
	before = strtoull(at + 1, &rest, 10);
	sector = sector_in_use();
	snprintf(value, size, "%.*s%llu%s", (int)(at - fault), fault,
		 sector > before ? sector - before : 0, rest);
}

int main(int argc, char **argv)
{
	int i, status, fd = -1, bad = 0, writers;
	char value[128] = "1";
	pid_t child[PC_FILES / FILES];

	writers = argc >= 7 ? atoi(argv[5]) : 0;
	if (argc < 7 || argc > 9 || writers < 1 || writers > (int)(PC_FILES / FILES) ||
	    strtoul(argv[3], NULL, 10) >= PC_CUTS || atol(argv[6]) < 1) {
		fprintf(stderr,
			"usage: powercut_load DIR STATE CUT SEED WRITERS MS [CUTFILE [FAULT]]\n");
		return 2;
	}
	dir = argv[1];
	cut_number = strtoul(argv[3], NULL, 10);
	setvbuf(stdout, NULL, _IOLBF, 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	may_shift = argc == 7;
	if (argc > 7)
		fd = open(argv[7], O_WRONLY);
	if (argc > 7 && fd < 0) {
		printf("%s: %s\n", argv[7], strerror(errno));
		return 1;
	}
	for (i = 0; i < writers; i++) {
		writer = i;
		child[i] = fork();
		if (!child[i])
			work(argv[2], strtoull(argv[4], NULL, 10));
	}
	pause_ms(atol(argv[6]));
	if (argc == 9) {
		rnd_seed(strtoull(argv[4], NULL, 10) * 64);
		place_fault(value, sizeof(value), argv[8]);
		printf("fault: %s\n", value);
	}
	shared->fault = argc == 9;
	shared->cut = argc > 7;
	shared->stop = argc == 7;
	if (argc > 7 && write(fd, value, strlen(value)) != (ssize_t)strlen(value)) {
		printf("%s: %s\n", argv[7], strerror(errno));
		bad++;
	}
	if (argc == 9) {
		pause_ms(atol(argv[6]));
		shared->stop = 1;
	}
	for (i = 0; i < PATIENCE_S * 10; i++) {
		while (waitpid(-1, &status, WNOHANG) > 0) {
			bad += status != 0;
			writers--;
		}
		if (writers <= 0)
			break;
		pause_ms(100);
	}
	if (writers > 0) {
		printf("%d writers still work %d s later\n", writers, PATIENCE_S);
		for (i = 0; i < atoi(argv[5]); i++)
			kill(child[i], SIGKILL);
		bad++;
	}
	for (i = 0; i < KINDS; i++)
		printf("%s%s %lu", i ? ", " : "worked: ", kinds[i], shared->worked[i]);
	printf("\n");
	printf("ops %lu acks %lu files %lu\n", shared->ops, shared->acks, shared->files);
	return !!bad;
}
