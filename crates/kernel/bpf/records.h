/* The records that the programs hand over. src/record.rs reads them; a test there compares the sizes. */
#ifndef LEADLINE_RECORDS_H
#define LEADLINE_RECORDS_H

#include "helpers.h"

enum kind {
  BEGIN = 1,
  FORK = 2,
  EXEC = 3,
  END = 4,
  CALLS_AND_STAYS = 5,
  STACK = 8,
  BLOCK_IO = 9,
  CALL_SUM = 10,
  OPEN_FILE = 11,
  URING_OP = 12,
  RETRANSMIT = 13,
  RENAMED = 14,
  WAKER = 15,
  AIO = 16
};

/* Every record. tid: as our PID namespace numbers it. thread: number of the thread in the trace, which no other one gets; 0: none of the
 * trace. */
struct head {
  u32 kind;
  u32 cpu;
  u32 tid;
  u32 thread;
  u64 ts;
};

/* A thread as it is found (BEGIN), made (FORK), given another program (EXEC) or another name (RENAMED), or one outside of the trace that
 * woke a thread of it (WAKER). other_tid: of its parent (BEGIN) or of its maker (FORK). */
struct named {
  struct head head;
  u32 tgid;
  u32 other_tid;
  u64 start_ns;
  char comm[16];
};

/* What a thread did in the window. Kept in the kernel, so that it is exact when records are lost. */
struct totals {
  u64 since;
  u64 user_ns;
  u64 system_ns;
  u64 runq_preempt_ns;
  u64 runq_wake_ns;
  u64 sleep_ns;
  u64 sleep_d_ns;
  u64 stopped_ns;
  u64 unknown_ns;
  u64 calls;
  u64 failed_calls;
  u64 sleeps;
  u64 preemptions;
  u64 migrations;
  u64 minor_faults;
  u64 major_faults;
  u64 lost;
  u64 stat_run_ns;
  u64 stat_runq_ns;
  u64 stat_slices;
  u64 interrupt_ns; /* of user_ns and system_ns */
  u64 node_moves; /* of the migrations, those to another NUMA node */
  u32 policy; /* SCHED_*, at the end */
  s32 priority; /* of fifo and rr; of the others, nice */
};

/* The end of a thread, or of the window; exited: which of the two. */
struct end {
  struct head head;
  u32 tgid;
  u32 exited;
  struct totals totals;
};

/* Calls and stays of a thread come together, in the order in which they ended: to hand over a record costs more than to fill it in, and
 * what little memory is touched stays in the caches. Each begins with its form. head.ts: how many they are. */
#define TOGETHER 1024
struct together {
  struct head head;
  u8 entries[TOGETHER];
};
enum form { BRIEF_CALL, WHOLE_CALL, STAY };

/* A system call that returned: when it began, or when the window did (partial). */
struct call {
  u16 form;
  u16 nr;
  u32 sleeps;
  u64 ts;
  u64 duration_ns;
  s64 ret;
  u64 args[6];
  u64 sleep_ns;
  u64 runq_ns;
  u64 unknown_ns;
  u32 file_id; /* what its descriptor stands for; 0: it has none */
  u32 partial;
};

/* Most calls: on a CPU from begin to end, with small numbers. What is not here is 0. */
struct brief_call {
  u16 form;
  u16 nr;
  u32 duration_ns;
  u64 ts;
  u64 arg1;
  s32 ret;
  u32 arg0;
  u32 arg2;
  u32 file_id;
};

/* The calls of a thread that had the same number and error, from `since` to head.ts: instead of a record for each of them. error: 0: they
 * did not fail. */
struct sum {
  u64 since;
  u64 duration_ns;
  u64 sleep_ns;
  u64 runq_ns;
  u64 unknown_ns;
  u64 longest_ns;
  u64 calls;
  u64 sleeps;
  u16 nr;
  u16 error;
  u32 used;
};
struct call_sum {
  struct head head;
  struct sum sum;
};

#define FRAMES 12
#define SAMPLE_FRAMES 32
#define USER_STACK 16384

/* A stay off the CPU, up to its end. ts: when it began. sleep_ns: until the waking, of a sleep that was ended by one.
 * state: the task's state as the kernel has it; 0: preempted. nr: of the system call; -1: in none. before_tid: who was on the CPU just
 * before; 0: nobody, it was idle. frames: so many functions of the kernel that it slept in follow, the innermost first; AS_BEFORE: those of
 * the thread's last stay that had some. */
#define AS_BEFORE 0xffff
struct stay {
  u16 form;
  u16 frames;
  u32 state;
  u64 ts;
  u64 duration_ns;
  u64 sleep_ns;
  u32 waker_tid;
  s32 nr;
  u32 before_tid;
  u16 cpu;
  u16 open; /* it goes on when the window ends */
  u64 ips[FRAMES];
};
#define STAY_HEAD __builtin_offsetof(struct stay, ips)
#define LARGEST_ENTRY sizeof(struct stay)

/* A request of a block device that was done at head.ts; head.tid: who asked for it, 0 when that is not known.
 * queue_ns: until the device got it; operation: REQ_OP_*. */
struct block_io {
  struct head head;
  u64 sector;
  u64 queue_ns;
  u64 service_ns;
  u32 bytes;
  u32 error;
  u32 device; /* as in /proc/diskstats: major << 20 | minor, of the whole disk */
  u32 flags; /* operation in the low 8 bits */
  char comm[16];
};

/* An operation of io_uring that was completed at head.ts; head.tid: who handed it over. result: as of the call that does the same. */
struct uring_op {
  struct head head;
  u64 duration_ns;
  s32 result;
  u32 opcode;
  u32 file_id;
  u32 by_worker;
  u64 bytes; /* asked for */
  s64 place; /* in the file; -1: where the descriptor stands */
};

/* What a thread handed over by io_submit at head.ts. */
struct aio {
  struct head head;
  u64 bytes;
  s64 place;
  u32 opcode;
  u32 file_id;
};

#define NAMES 2048
#define NAME_MAX 256
#define OPEN_FILE_HEAD __builtin_offsetof(struct open_file, names)

/* Both ends of a socket. remote_port: in network order, as the kernel has it. */
struct addresses {
  u16 family;
  u16 local_port;
  u16 remote_port;
  u16 unused;
  u8 local[16];
  u8 remote[16];
};

/* A segment of TCP that was sent again at head.ts, when `state` was that of its connection. */
struct retransmit {
  struct head head;
  struct addresses at;
  u32 file_id;
  u32 bytes; /* without headers; 0: only a sign, such as SYN */
  u32 state;
  u32 unused;
};

/* What an open file is; handed over again when a socket has got its addresses. names: of its path, the last one first, each with
 * a zero at its end. whole: up to the root. */
struct open_file {
  struct head head;
  u64 inode;
  u64 magic;
  u32 file_id;
  u32 tgid;
  u32 device;
  u32 mode;
  u32 flags;
  u32 nlink;
  struct addresses at;
  u16 type;
  u16 protocol;
  u32 whole;
  u32 name_bytes;
  u32 unused;
  u8 names[NAMES];
};

/* Why a stack was taken, and what its weight counts: ns on a CPU, ns asleep in system calls, failed calls. */
enum why { ON_CPU = 1, ASLEEP = 2, FAILED = 3 };

/* Where a thread was: the functions of the kernel, its registers of user mode, and the bytes of its user stack from sp on, as many as
 * were there. nr: system call, -1: none; error: of the call that failed. */
struct stack {
  struct head head;
  u32 why;
  u32 tgid;
  s32 nr;
  u32 error;
  u64 weight;
  u64 ip;
  u64 sp;
  u64 bp;
  u32 waker_tid;
  u32 frames;
  u32 bytes;
  u32 unused;
  u64 ips[SAMPLE_FRAMES];
  u8 user[USER_STACK];
};

#endif
