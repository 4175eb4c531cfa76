/* Threads of chosen processes: each system call, each stay off the CPU, and sums of both.
 *
 * The state of a thread is in its task storage: what has none is not traced, which costs one look. Threads that exist when the
 * trace begins get theirs from an iteration over all tasks, their children from the fork. The times between two events of a
 * thread are added to exactly one sum, so the sums of a thread close; they are handed over at its end and at the end of the
 * window, and stay right when the ring of events has no room for a record: they have a ring of their own. */
#include "records.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sched_entity {
  u64 sum_exec_runtime;
};
struct sched_info {
  unsigned long pcount;
  unsigned long long run_delay;
};
struct thread_struct {
  unsigned long sp;
};
struct bpf_local_storage {};
struct mm_struct {
  unsigned long start_stack;
};
struct thread_info {
  u32 status;
};
struct ns_common {
  unsigned int inum;
};
struct pid_namespace {
  struct ns_common ns;
};
struct upid {
  int nr;
  struct pid_namespace *ns;
};
struct pid {
  unsigned int level;
  struct upid numbers[1];
};
struct task_struct {
  struct thread_info thread_info;
  struct bpf_local_storage *bpf_storage;
  unsigned int __state;
  int on_cpu;
  int static_prio;
  unsigned int rt_priority;
  unsigned int policy;
  int pid;
  int tgid;
  u64 start_time;
  unsigned long min_flt;
  unsigned long maj_flt;
  char comm[16];
  struct task_struct *real_parent;
  struct task_struct *group_leader;
  struct pid *thread_pid;
  struct sched_entity se;
  struct sched_info sched_info;
  struct mm_struct *mm;
  struct files_struct *files;
  struct thread_struct thread;
};
struct pt_regs {
  unsigned long bp, bx, r10, r9, r8, cx, dx, si, di, orig_ax, ip, sp;
};
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
volatile const u64 sample_cpu_ns = 0; /* what a sample of the CPU stands for */
volatile const u64 scheduler_from = 0; /* where the kernel has the functions of its scheduler, and locks */
volatile const u64 scheduler_bytes = 0;
volatile const u8 arguments[2 * CALLS] = {}; /* of each call: what its other registers hold has nothing to do with it */
volatile const u64 stacks_up_to = 0; /* bytes in the ring, above which a stack finds no room: they are large, and give way first */
volatile const u32 namespace_inode = 0; /* of our PID namespace; 0: the first one, whose numbers tasks have themselves */
volatile const u32 first_failures = 0; /* of a process, call and errno that have their user stack; then each 2^n-th */

#define SUM_SLOTS 16 /* calls of a thread that are summed at the same time; a power of two */

#include "known_stack.h"

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
#define SCHED_FIFO 1
#define SCHED_RR 2
#define NICE_0 120 /* static_prio of a thread with nice 0 */

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
#define SUMS_EVERY_NS 1000000000ull

#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_STOPPED_TRACED 0xc
#define TASK_DEAD 0x80
#define TASK_NOLOAD 0x400
#define ERRNO_MAX 4095
#define RESTART_FIRST -516 /* ERESTART_RESTARTBLOCK */
#define RESTART_LAST -512 /* ERESTARTSYS; nobody outside the kernel sees these */
#define NR_RT_SIGRETURN 15 /* returns what the interrupted code had in the register */
#define NR_SIGRETURN_32 119
#define NR_RT_SIGRETURN_32 173
#define NR_EXECVE 59
#define NR_EXECVEAT 322
#define TS_COMPAT 2

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

#include "namespace.h"
#include "files.h"

/* Submits without waking the reader, who comes by itself. */
#define SUBMIT(record) bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP)

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

#include "sums.h"
#include "stacks.h"
#include "interrupts.h"

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

#include "aio.h"

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

#include "uring.h"
#include "retransmits.h"
#include "block.h"
