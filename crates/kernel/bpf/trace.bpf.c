/* Threads of chosen processes: each system call, each stay off the CPU, and sums of both.
 *
 * The state of a thread is in its task storage: what has none is not traced, which costs one look. Threads that exist when the
 * trace begins get theirs from an iteration over all tasks, their children from the fork. The times between two events of a
 * thread are added to exactly one sum, so the sums of a thread close; they are handed over at its end and at the end of the
 * window, and stay right when the ring of events has no room for a record: they have a ring of their own.
 *
 * Each header includes what it uses. Those named *.bpf.h have programs of their own. */
#include "aio.h"
#include "block.bpf.h"
#include "files.h"
#include "interrupts.bpf.h"
#include "namespace.h"
#include "retransmits.bpf.h"
#include "stacks.bpf.h"
#include "state.h"
#include "sums.h"
#include "thread.h"
#include "uring.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct bpf_iter_meta {
  u64 session_id;
};
struct bpf_iter__task {
  struct bpf_iter_meta *meta;
  struct task_struct *task;
};
#pragma clang attribute pop

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading. */
volatile const u32 has_prev_state = 1; /* sched_switch has a fourth argument: kernel 5.18 and later */
volatile const u64 stack_from_ns = 100000; /* sleeps this long have their functions */
volatile const u64 sample_asleep_ns = 0; /* a user stack for each so many ns of sleep in calls; 0: none */
volatile const u8 arguments[2 * CALLS] = {}; /* of each call: what its other registers hold has nothing to do with it */

#define TASK_DEAD 0x80
#define ERRNO_MAX 4095
#define RESTART_FIRST -516 /* ERESTART_RESTARTBLOCK */
#define RESTART_LAST -512 /* ERESTARTSYS; nobody outside the kernel sees these */
#define NR_RT_SIGRETURN 15 /* returns what the interrupted code had in the register */
#define NR_SIGRETURN_32 119
#define NR_RT_SIGRETURN_32 173
#define NR_EXECVE 59
#define NR_EXECVEAT 322
#define TS_COMPAT 2

/* A stay off the CPU, up to now; open: it goes on. Of the longest sleep of a call the functions are kept, for its stack. */
INLINE void put_stay(struct thread *t, struct task_struct *task, u64 slept, u32 before_tid, u32 open, u64 now) {
  u32 has_functions = t->task_state && slept >= stack_from_ns, is_longest = has_functions && slept > t->longest_ns;
  if (is_longest) {
    t->longest_ns = slept;
    t->wait_waker_tid = t->waker_tid;
  }
  if (window.left_out & NO_EVENTS) {
    /* Its stack is only needed for the sample that is due when the call ends. */
    if (is_longest && sample_asleep_ns && t->unsampled_sleep_ns + t->call_sleep_ns >= sample_asleep_ns) {
      look_at_functions(task, &t->known);
      t->wait_frames = put_functions(&t->known, t->wait_ips);
    }
    return;
  }
  struct stay *r = room_in(t, STAY_HEAD);
  if (!r)
    return;
  r->form = STAY;
  r->frames = 0;
  r->state = t->task_state;
  r->ts = t->off_since;
  r->duration_ns = now - t->off_since;
  r->sleep_ns = slept;
  r->waker_tid = t->waker_tid;
  r->nr = t->call_since ? t->nr : -1;
  r->before_tid = before_tid;
  r->cpu = bpf_get_smp_processor_id();
  r->open = open;
  if (!has_functions)
    return;
  look_at_functions(task, &t->known);
  if (is_longest)
    t->wait_frames = put_functions(&t->known, t->wait_ips);
  if (t->known.told) {
    r->frames = AS_BEFORE;
    return;
  }
  r->frames = put_functions(&t->known, r->ips);
  if (!r->frames)
    return;
  t->known.told = 1;
  t->together_bytes += sizeof(struct stay) - STAY_HEAD;
}

SEC("iter/task")
int each_task(struct bpf_iter__task *ctx) {
  struct task_struct *task = ctx->task;
  if (!task)
    return 0;
  u64 end = window.until;
  if (end) {
    struct thread *t = thread_of(task);
    if (!t || t->state == DEAD)
      return 0;
    if (t->state != ENDING) {
      if (t->since > end) /* an event that was on its way when the window ended */
        end = t->since;
      if (t->state != RUNNING)
        put_stay(t, task, t->state == SLEEPING ? end - t->off_since : t->slept_ns, 0, 1, end);
      account(t, end);
      hand_over(t);
      t->state = ENDING;
    }
    if (put_sums(t, t->since) && put_end(t, task, t->since, 0))
      t->state = DEAD;
    else
      window.unfinished++; /* there is another pass */
    return 0;
  }
  find_namespace(task);
  u32 tgid = number_of(task->group_leader);
  if (!bpf_map_lookup_elem(&targets, &tgid))
    return 0;
  struct thread *t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
  if (!t || t->state)
    return 0;
  u64 now = bpf_ktime_get_ns();
  begin(t, task, now);
  u32 state = RUNNING;
  if (!task->on_cpu) {
    t->task_state = task->__state;
    state = t->task_state ? SLEEPING : PREEMPTED;
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
    long nr = -1;
    bpf_probe_read_kernel(&nr, sizeof(nr), &regs->orig_ax);
    if (state == SLEEPING && nr >= 0 && nr < 0x10000) {
      t->call_since = now;
      t->nr = nr;
      t->partial = 1;
    }
  }
  put_name(t, task, BEGIN, now, number_of(task->real_parent));
  t->state = state;
  return 0;
}

SEC("tp_btf/sched_process_fork")
int forked(u64 *ctx) {
  struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
  if (!thread_of(parent))
    return 0;
  u64 now = now_in_window();
  if (!now)
    return 0;
  struct thread *t = bpf_task_storage_get(&threads, child, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
  if (!t)
    return 0;
  begin(t, child, now);
  put_name(t, child, FORK, now, number_of(parent));
  t->state = WOKEN;
  return 0;
}

SEC("tp_btf/sched_process_exec")
int executed(u64 *ctx) {
  struct task_struct *task = (void *)ctx[0];
  struct thread *t = thread_of(task);
  u64 now = now_in_window();
  if (t && now) {
    t->tid = number_of(task); /* not the first thread may have done it: it has the number of the first one now */
    put_name(t, task, EXEC, now, 0);
  }
  return 0;
}

SEC("tp_btf/task_rename")
int renamed(u64 *ctx) {
  struct task_struct *task = (void *)ctx[0];
  struct thread *t = thread_of(task);
  u64 now = now_in_window();
  if (!t || !now || (t->call_since && (t->nr == NR_EXECVE || t->nr == NR_EXECVEAT))) /* that is told by itself */
    return 0;
  struct named *r = bpf_ringbuf_reserve(&vital, sizeof(*r), 0);
  if (!r)
    return 0;
  put_head(&r->head, RENAMED, t, now);
  r->tgid = t->tgid;
  r->other_tid = 0;
  r->start_ns = task->start_time;
  __builtin_memset(r->comm, 0, sizeof(r->comm));
  bpf_probe_read_kernel_str(r->comm, sizeof(r->comm), (void *)ctx[1]); /* the task has it in a moment */
  SUBMIT(r);
  return 0;
}

INLINE void leave(struct thread *t, struct task_struct *task, u32 preempted, u32 task_state, u64 now) {
  if (t->state != RUNNING)
    missed(t, now);
  account(t, now);
  if (t->cpu != bpf_get_smp_processor_id()) { /* it ran when the trace began, or its coming was missed */
    t->cpu = bpf_get_smp_processor_id();
    t->node = bpf_get_numa_node_id();
  }
  t->off_since = now;
  t->slept_ns = 0;
  t->waker_tid = 0;
  hand_over(t);
  if (task_state & TASK_DEAD) {
    if (!put_sums(t, now) || !put_end(t, task, now, 1))
      count_lost(LOST_THREADS, 1);
    t->state = DEAD;
  } else if (preempted || !task_state) {
    t->totals.preemptions++;
    t->task_state = 0;
    t->state = PREEMPTED;
  } else {
    t->totals.sleeps++;
    t->call_sleeps++;
    t->task_state = task_state;
    t->state = SLEEPING;
  }
}

/* It goes on where it did not run last. */
INLINE void moved(struct thread *t) {
  u32 node = bpf_get_numa_node_id();
  if (t->cpu != NOT_SEEN) {
    t->totals.migrations++;
    if (t->node != node)
      t->totals.node_moves++;
  }
  t->cpu = bpf_get_smp_processor_id();
  t->node = node;
}

INLINE void enter_cpu(struct thread *t, struct task_struct *task, struct task_struct *before, u64 now) {
  if (t->state == RUNNING) {
    missed(t, now);
    return;
  }
  u64 slept = t->state == SLEEPING ? now - t->off_since : t->slept_ns;
  account(t, now);
  t->state = RUNNING;
  if (t->cpu != bpf_get_smp_processor_id())
    moved(t);
  put_stay(t, task, slept, number_of(before), 0, now);
  if (window.left_out & NO_EVENTS)
    put_sums_when_due(t, task, now);
}

SEC("tp_btf/sched_switch")
int switched(u64 *ctx) {
  u32 preempted = (u8)ctx[0];
  struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
  struct thread *leaving = thread_of(prev), *entering = thread_of(next);
  if (!leaving && !entering)
    return 0;
  u64 now = now_in_window();
  if (!now)
    return 0;
  if (leaving && leaving->state != DEAD)
    leave(leaving, prev, preempted, has_prev_state ? (u32)ctx[3] : prev->__state, now);
  if (entering && entering->state != DEAD)
    enter_cpu(entering, next, prev, now);
  return 0;
}

SEC("tp_btf/sched_waking")
int waking(u64 *ctx) {
  struct task_struct *task = (void *)ctx[0];
  struct thread *t = thread_of(task);
  if (!t || t->state != SLEEPING)
    return 0;
  u64 now = now_in_window();
  if (!now)
    return 0;
  account(t, now);
  t->slept_ns = now - t->off_since;
  struct task_struct *waker = bpf_get_current_task_btf();
  t->waker_tid = number_of(waker);
  if (!thread_of(waker))
    put_waker(waker, t->waker_tid, now);
  t->state = WOKEN;
  return 0;
}

/* A call that begins: its number, and its arguments. */
INLINE void take_call(struct thread *t, struct task_struct *task, struct pt_regs *regs, u32 nr) {
  t->call_sleep_ns = t->call_runq_ns = t->call_unknown_ns = 0;
  t->call_sleeps = t->wait_frames = t->wait_waker_tid = 0;
  t->longest_ns = 0;
  t->file_id = 0;
  if (task->thread_info.status & TS_COMPAT) {
    t->nr = (nr & (CALLS_OF_32_BIT - 1)) + CALLS_OF_32_BIT;
    t->args[0] = (u32)regs->bx;
    t->args[1] = (u32)regs->cx;
    t->args[2] = (u32)regs->dx;
    t->args[3] = (u32)regs->si;
    t->args[4] = (u32)regs->di;
    t->args[5] = (u32)regs->bp;
    return;
  }
  t->nr = nr;
  t->args[0] = regs->di;
  t->args[1] = regs->si;
  t->args[2] = regs->dx;
  t->args[3] = regs->r10;
  t->args[4] = regs->r8;
  t->args[5] = regs->r9;
}

SEC("tp_btf/sys_enter")
int call_begins(u64 *ctx) {
  struct task_struct *task = bpf_get_current_task_btf();
  struct thread *t = thread_of(task);
  if (!t)
    return 0;
  u64 now = now_in_window();
  if (!now)
    return 0;
  struct pt_regs *regs = (void *)ctx[0];
  if (t->state != RUNNING)
    missed(t, now);
  account(t, now);
  t->call_since = now;
  t->partial = 0;
  t->called = 1;
  take_call(t, task, regs, ctx[1]);
  if (!(window.left_out & NO_EVENTS) && is_among(calls_with_file, t->nr))
    t->file_id = file_as_known(task, &t->fds, t->args[0], now);
  if (!(window.left_out & NO_EVENTS) && t->nr == NR_IO_SUBMIT)
    put_aios(task, t, now);
  return 0;
}

INLINE void put_call(struct thread *t, struct task_struct *task, s64 ret, u64 now) {
  if (!is_among(calls_that_keep, t->nr))
    __sync_fetch_and_add(&fd_changes, 1);
  if (ret >= 0 && is_among(calls_that_open, t->nr))
    t->file_id = file_of(task, ret, OPENED, now);
  if ((ret == 0 || ret == IN_PROGRESS) && (t->nr == NR_CONNECT || t->nr == NR_BIND))
    file_of(task, t->args[0], ADDRESSED, now);
  u64 args[6], duration = now - t->call_since, off_cpu = t->call_sleep_ns | t->call_runq_ns | t->call_unknown_ns;
  u32 place = place_of(t->nr), count = place < 2 * CALLS ? arguments[place] : 6;
  for (u32 i = 0; i < 6; i++)
    args[i] = i < count ? t->args[i] : 0;
  u64 absent = off_cpu | t->call_sleeps | t->partial | args[3] | args[4] | args[5];
  u32 is_brief = !absent && !((duration | args[0] | args[2]) >> 32) && ret == (s32)ret;
  if (is_brief) {
    struct brief_call *r = room_in(t, sizeof(*r));
    if (!r)
      return;
    r->form = BRIEF_CALL;
    r->nr = t->nr;
    r->duration_ns = duration;
    r->ts = t->call_since;
    r->arg1 = args[1];
    r->ret = ret;
    r->arg0 = args[0];
    r->arg2 = args[2];
    r->file_id = t->file_id;
    return;
  }
  struct call *r = room_in(t, sizeof(*r));
  if (!r)
    return;
  r->form = WHOLE_CALL;
  r->nr = t->nr;
  r->sleeps = t->call_sleeps;
  r->ts = t->call_since;
  r->duration_ns = duration;
  r->ret = ret;
  for (u32 i = 0; i < 6; i++)
    r->args[i] = args[i];
  r->sleep_ns = t->call_sleep_ns;
  r->runq_ns = t->call_runq_ns;
  r->unknown_ns = t->call_unknown_ns;
  r->file_id = t->file_id;
  r->partial = t->partial;
}

/* The stacks that a call deserves: because it failed, and because its thread has slept long enough since the last one. */
INLINE void put_stacks_of_call(struct thread *t, struct task_struct *task, struct pt_regs *user, u32 error, u64 now) {
  if (error && first_failures && failure_is_wanted(t, error))
    put_call_stack(task, t, user, FAILED, error, 1, now);
  if (sample_asleep_ns && t->call_sleep_ns) {
    t->unsampled_sleep_ns += t->call_sleep_ns;
    if (t->unsampled_sleep_ns >= sample_asleep_ns) {
      put_call_stack(task, t, user, ASLEEP, error, t->unsampled_sleep_ns, now);
      t->unsampled_sleep_ns = 0;
    }
  }
}

/* The end of a signal handler: what it returns is what a register held before, and no error. */
INLINE u32 returns_a_register(u32 nr) {
  return nr == NR_RT_SIGRETURN || nr == CALLS_OF_32_BIT + NR_SIGRETURN_32 || nr == CALLS_OF_32_BIT + NR_RT_SIGRETURN_32;
}

SEC("tp_btf/sys_exit")
int call_ends(u64 *ctx) {
  struct task_struct *task = bpf_get_current_task_btf();
  struct thread *t = thread_of(task);
  if (!t)
    return 0;
  u64 now = now_in_window();
  if (!now)
    return 0;
  if (!t->call_since && !t->called) { /* a call that began before the trace, or the fork that made it */
    t->called = 1;
    return 0;
  }
  if (t->state != RUNNING)
    missed(t, now);
  account(t, now);
  struct pt_regs *user = (void *)ctx[0];
  if (!t->call_since) { /* a filter of seccomp, or a tracer, has answered: it never began */
    long nr = user->orig_ax;
    if (nr < 0 || nr >= CALLS_OF_32_BIT)
      return 0;
    t->call_since = now;
    t->partial = 0;
    take_call(t, task, user, nr);
  }
  s64 ret = ctx[1];
  u32 error = 0;
  t->totals.calls++;
  if (ret < 0 && ret >= -ERRNO_MAX && !(ret >= RESTART_FIRST && ret <= RESTART_LAST) && !returns_a_register(t->nr)) {
    error = -ret;
    t->totals.failed_calls++;
  }
  u64 without = window.left_out;
  if (without & NO_EVENTS)
    add_to_sums(t, error, now);
  else
    put_call(t, task, ret, now);
  if (!(without & NO_STACKS))
    put_stacks_of_call(t, task, user, error, now);
  t->call_since = 0;
  if (without & NO_EVENTS)
    put_sums_when_due(t, task, now);
  return 0;
}
