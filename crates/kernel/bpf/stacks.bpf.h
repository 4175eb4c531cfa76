/* Stacks: of what runs on a CPU at a sample, and of system calls that failed or slept. The functions of the kernel are read here; of the user's
 * stack the bytes are handed over, and unwound later. */
#ifndef LEADLINE_STACKS_H
#define LEADLINE_STACKS_H

#include "state.h"

/* Set before loading. */
volatile const u64 sample_cpu_ns = 0; /* what a sample of the CPU stands for */
volatile const u64 stacks_up_to = 0; /* bytes in the ring, above which a stack finds no room: they are large, and give way first */
volatile const u32 first_failures = 0; /* of a process, call and errno that have their user stack; then each 2^n-th */

/* A stack while it is put together. A sample of the CPU may come while one of a call is made. */
enum scratch { OF_CALL, OF_CPU };
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 2);
  __type(key, u32);
  __type(value, struct stack);
} scratch SEC(".maps");

/* How often a process has failed in a call with an error. */
struct failure {
  u32 tgid;
  u16 nr;
  u16 error;
};
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 32768);
  __type(key, struct failure);
  __type(value, u32);
} failures SEC(".maps");

#define CHUNK 1024

/* Fills in the user's side and hands the stack over. */
INLINE void put_stack(struct stack *s, struct thread *t, struct task_struct *task, struct pt_regs *user, u64 now) {
  if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > stacks_up_to) {
    count_lost(LOST_STACKS, 1);
    return;
  }
  put_head(&s->head, STACK, t, now);
  s->tgid = t->tgid;
  bpf_probe_read_kernel(&s->ip, sizeof(s->ip), &user->ip);
  bpf_probe_read_kernel(&s->sp, sizeof(s->sp), &user->sp);
  bpf_probe_read_kernel(&s->bp, sizeof(s->bp), &user->bp);
  /* The stack of the first thread of a process ends where its arguments begin. Of others nobody says where. */
  u64 top = 0;
  struct mm_struct *mm = NULL;
  bpf_probe_read_kernel(&mm, sizeof(mm), &task->mm);
  bpf_probe_read_kernel(&top, sizeof(top), &mm->start_stack);
  u32 bytes = 0;
  for (u32 i = 0; i < USER_STACK / CHUNK; i++) {
    u64 from = s->sp + i * CHUNK;
    if (from >= top && from - top < CHUNK)
      break;
    if (bpf_probe_read_user(s->user + i * CHUNK, CHUNK, (void *)from))
      break;
    bytes = (i + 1) * CHUNK;
  }
  s->bytes = bytes;
  if (bytes > USER_STACK)
    return;
  if (bpf_ringbuf_output(&ring, s, sizeof(*s) - USER_STACK + bytes, BPF_RB_NO_WAKEUP))
    count_lost(LOST_STACKS, 1);
}

/* Where a call was made from, and where it slept longest. */
INLINE void put_call_stack(struct task_struct *task, struct thread *t, struct pt_regs *user, u32 why, u32 error, u64 weight, u64 now) {
  u32 slot = OF_CALL;
  struct stack *s = bpf_map_lookup_elem(&scratch, &slot);
  if (!s)
    return;
  s->why = why;
  s->nr = t->nr;
  s->error = error;
  s->weight = weight;
  s->waker_tid = t->wait_waker_tid;
  s->frames = t->wait_frames;
  for (int i = 0; i < FRAMES; i++)
    s->ips[i] = t->wait_ips[i];
  put_stack(s, t, task, user, now);
}

/* Whether the stack of this failure is wanted: the first ones of a process, then ever fewer. A thread that fails over and over asks
 * seldom: each of its first, then each 2^n-th. */
INLINE u32 failure_is_wanted(struct thread *t, u32 error) {
  if (t->failed_nr != t->nr || t->failed_error != error) {
    t->failed_nr = t->nr;
    t->failed_error = error;
    t->failures = 0;
  }
  u32 n = ++t->failures;
  if (n > first_failures && n & (n - 1))
    return 0;
  struct failure key = {.tgid = t->tgid, .nr = t->nr, .error = error};
  u32 *known = bpf_map_lookup_elem(&failures, &key);
  if (!known) {
    u32 one = 1;
    bpf_map_update_elem(&failures, &key, &one, 0);
    return 1;
  }
  n = __sync_fetch_and_add(known, 1) + 1;
  return n <= first_failures || !(n & (n - 1));
}

/* What runs on this CPU now. */
SEC("perf_event")
int on_cpu(struct pt_regs *ctx) {
  struct task_struct *task = bpf_get_current_task_btf();
  struct thread *t = thread_of(task);
  if (!t || t->state == DEAD)
    return 0;
  u64 now = now_in_window();
  if (!now || window.left_out & NO_STACKS)
    return 0;
  u32 slot = OF_CPU;
  struct stack *s = bpf_map_lookup_elem(&scratch, &slot);
  if (!s)
    return 0;
  long bytes = bpf_get_stack(ctx, s->ips, sizeof(s->ips), 0);
  s->why = ON_CPU;
  s->nr = t->call_since ? t->nr : -1;
  s->error = 0;
  s->weight = sample_cpu_ns;
  s->waker_tid = 0;
  s->frames = bytes > 0 ? bytes / sizeof(u64) : 0;
  put_stack(s, t, task, (struct pt_regs *)bpf_task_pt_regs(task), now);
  return 0;
}

#endif
