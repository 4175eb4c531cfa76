/* What all programs share: the state of a traced thread, the window, and the rings into which records go. */
#ifndef LEADLINE_STATE_H
#define LEADLINE_STATE_H

#include "known_stack.h"
#include "records.h"
#include "task.h"

#define SUM_SLOTS 16 /* calls of a thread that are summed at the same time; a power of two */
#define KNOWN_FDS 8 /* a power of two */

/* What descriptors of a thread stand for, as long as `changes` is fd_changes. */
struct known_fds {
  u32 changes;
  u32 fd[KNOWN_FDS];
  u32 id[KNOWN_FDS];
};

/* What a thread is doing. */
enum state { ABSENT, RUNNING, SLEEPING, WOKEN, PREEMPTED, ENDING, DEAD };

#define NOT_SEEN 0xffffffff

struct thread {
  /* What nearly every event needs comes first, in as few lines of the cache as can be: others evict them between two events. */
  u64 since; /* when the present stretch of time began */
  u64 call_since; /* 0: in no call */
  u64 call_sleep_ns;
  u64 call_runq_ns;
  u64 call_unknown_ns;
  u32 state; /* enum state; written last when the rest is ready */
  u32 number; /* in the trace */
  u32 call_sleeps;
  u16 nr;
  u16 partial;
  u32 file_id;
  u32 cpu; /* it ran on last, and the NUMA node of that; NOT_SEEN: it was not seen to run */
  u32 node;
  struct totals totals;
  u32 tid; /* as our PID namespace numbers it */
  u32 tgid;
  u32 called; /* the begin or the end of a call was seen */
  u64 off_since; /* when it left the CPU */
  u64 slept_ns; /* of the present stay off the CPU, until the waking */
  u32 task_state;
  u32 waker_tid;
  u64 args[6];
  u64 longest_ns; /* sleep in the call, of which are wait_ips, wait_frames and wait_waker_tid */
  u32 wait_frames;
  u32 wait_waker_tid;
  u32 failures; /* with failed_nr and failed_error, one after another */
  u32 failed_error;
  u16 failed_nr;
  u64 unsampled_sleep_ns; /* in calls, since the last one whose stack was taken */
  struct known_fds fds;
  u32 together_bytes;
  u32 together_count;
  struct together together;
  struct known_stack known;
  u64 wait_ips[FRAMES];
  u64 summed_since;
  struct sum sums[SUM_SLOTS];
};

struct {
  __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct thread);
} threads SEC(".maps");

/* Processes that are traced when the trace begins. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 65536);
  __type(key, u32);
  __type(value, u32);
} targets SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 25);
} ring SEC(".maps");

/* Who threads are, their ends and their sums: few records, which events and stacks leave their room. */
struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 23);
} vital SEC(".maps");

/* until: end of the window, nothing later is counted; 0: not yet known. since: its begin. left_out: see enum left_out. unfinished: threads
 * that could not hand over everything at the end of the window, for lack of room. */
volatile struct {
  u64 until;
  u64 since;
  u64 left_out;
  u64 unfinished;
} window SEC(".data.window");

/* What there was no room for: calls and stays, stacks, requests, threads that ended with their sums, segments of TCP. */
enum lost { LOST_EVENTS, LOST_STACKS, LOST_BLOCK_IOS, LOST_THREADS, LOST_RETRANSMITS };
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 5);
  __type(key, u32);
  __type(value, u64);
} lost SEC(".maps");

/* What is not handed over: stacks; single calls and stays off the CPU, instead of which calls are summed. */
enum left_out { NO_STACKS = 1, NO_EVENTS = 2 };

INLINE struct thread *thread_of(struct task_struct *task) {
  if (!task->bpf_storage) /* a read instead of a call, for each event of each thread of the host */
    return NULL;
  struct thread *t = bpf_task_storage_get(&threads, task, NULL, 0);
  return t && t->state ? t : NULL;
}

/* The time; 0 when the window is over. */
INLINE u64 now_in_window(void) {
  return window.until ? 0 : bpf_ktime_get_ns();
}

INLINE void put_head(struct head *head, u32 kind, struct thread *t, u64 ts) {
  head->kind = kind;
  head->cpu = bpf_get_smp_processor_id();
  head->tid = t->tid;
  head->thread = t->number;
  head->ts = ts;
}

INLINE void count_lost(u32 what, u64 how_many) {
  u64 *n = bpf_map_lookup_elem(&lost, &what);
  if (n)
    __sync_fetch_and_add(n, how_many);
}

/* Submits without waking the reader, who comes by itself. */
#define SUBMIT(record) bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP)

#endif
