/* What an event does to a thread: its time is accounted, its records are handed over, it begins and ends. */
#ifndef LEADLINE_THREAD_H
#define LEADLINE_THREAD_H

#include "namespace.h"
#include "state.h"

#define SCHED_FIFO 1
#define SCHED_RR 2
#define NICE_0 120 /* static_prio of a thread with nice 0 */
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_STOPPED_TRACED 0xc
#define TASK_NOLOAD 0x400

/* Hands over the calls and stays that have come together. */
static __attribute__((noinline)) u32 hand_over(struct thread *t) {
  u32 bytes = t->together_bytes;
  if (!bytes || bytes > TOGETHER)
    return 0;
  put_head(&t->together.head, CALLS_AND_STAYS, t, t->together_count);
  if (bpf_ringbuf_output(&ring, &t->together, sizeof(struct head) + bytes, BPF_RB_NO_WAKEUP)) {
    t->totals.lost += t->together_count;
    count_lost(LOST_EVENTS, t->together_count);
    t->known.told = 0;
  }
  t->together_bytes = t->together_count = 0;
  return 0;
}

/* Room for a call or a stay among those that come together. */
INLINE void *room_in(struct thread *t, u32 bytes) {
  if (t->together_bytes > TOGETHER - LARGEST_ENTRY)
    hand_over(t);
  u32 at = *(volatile u32 *)&t->together_bytes;
  if (at > TOGETHER - LARGEST_ENTRY)
    return NULL;
  t->together_bytes = at + bytes;
  t->together_count++;
  return t->together.entries + at;
}

/* The time since the last event goes to one sum. */
INLINE void account(struct thread *t, u64 now) {
  u64 d = now > t->since ? now - t->since : 0;
  struct totals *sum = &t->totals;
  switch (t->state) {
  case RUNNING:
    if (t->call_since)
      sum->system_ns += d;
    else
      sum->user_ns += d;
    break;
  case SLEEPING:
    if (t->task_state & TASK_STOPPED_TRACED)
      sum->stopped_ns += d;
    else if ((t->task_state & (TASK_UNINTERRUPTIBLE | TASK_NOLOAD)) == TASK_UNINTERRUPTIBLE)
      sum->sleep_d_ns += d;
    else
      sum->sleep_ns += d;
    t->call_sleep_ns += d;
    break;
  case WOKEN:
    sum->runq_wake_ns += d;
    t->call_runq_ns += d;
    break;
  case PREEMPTED:
    sum->runq_preempt_ns += d;
    t->call_runq_ns += d;
    break;
  }
  t->since = now;
}

/* An event says that the thread is on a CPU, or comes to one, against what is known of it: another event was missed. The time since
 * then is nobody's. */
INLINE void missed(struct thread *t, u64 now) {
  u64 d = now > t->since ? now - t->since : 0;
  t->totals.unknown_ns += d;
  t->call_unknown_ns += d;
  t->since = now;
  t->state = RUNNING;
}

INLINE void put_name(struct thread *t, struct task_struct *task, u32 kind, u64 now, u32 other_tid) {
  struct named *r = bpf_ringbuf_reserve(&vital, sizeof(*r), 0);
  if (!r) {
    t->totals.lost++;
    count_lost(LOST_EVENTS, 1);
    return;
  }
  put_head(&r->head, kind, t, now);
  r->tgid = t->tgid;
  r->other_tid = other_tid;
  r->start_ns = task->start_time;
  bpf_probe_read_kernel(r->comm, sizeof(r->comm), task->comm);
  SUBMIT(r);
}

/* Reads what the kernel itself has counted; the sums of a thread hold where that began. Whether there was room. */
INLINE u32 put_end(struct thread *t, struct task_struct *task, u64 now, u32 exited) {
  struct end *r = bpf_ringbuf_reserve(&vital, sizeof(*r), 0);
  if (!r)
    return 0;
  put_head(&r->head, END, t, now);
  r->tgid = t->tgid;
  r->exited = exited;
  r->totals = t->totals;
  r->totals.stat_run_ns = task->se.sum_exec_runtime - t->totals.stat_run_ns;
  r->totals.stat_runq_ns = task->sched_info.run_delay - t->totals.stat_runq_ns;
  r->totals.stat_slices = task->sched_info.pcount - t->totals.stat_slices;
  r->totals.minor_faults = task->min_flt - t->totals.minor_faults;
  r->totals.major_faults = task->maj_flt - t->totals.major_faults;
  r->totals.policy = task->policy;
  u32 real_time = task->policy == SCHED_FIFO || task->policy == SCHED_RR;
  r->totals.priority = real_time ? (s32)task->rt_priority : task->static_prio - NICE_0;
  SUBMIT(r);
  return 1;
}

/* The totals count from now on. */
INLINE void begin_totals(struct thread *t, struct task_struct *task, u64 now) {
  __builtin_memset(&t->totals, 0, sizeof(t->totals));
  t->totals.since = now;
  t->totals.stat_run_ns = task->se.sum_exec_runtime;
  t->totals.stat_runq_ns = task->sched_info.run_delay;
  t->totals.stat_slices = task->sched_info.pcount;
  t->totals.minor_faults = task->min_flt;
  t->totals.major_faults = task->maj_flt;
}

u32 last_number; /* of a thread in the trace */

INLINE void begin(struct thread *t, struct task_struct *task, u64 now) {
  t->number = __sync_fetch_and_add(&last_number, 1) + 1;
  t->tid = number_of(task);
  t->tgid = number_of(task->group_leader);
  t->since = t->off_since = t->summed_since = now;
  t->cpu = t->node = NOT_SEEN;
  begin_totals(t, task, now);
}

#endif
