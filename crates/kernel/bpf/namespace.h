/* Numbers of tasks as our PID namespace has them, which is how /proc and the user know them; and names of tasks outside of the trace. */
#ifndef LEADLINE_NAMESPACE_H
#define LEADLINE_NAMESPACE_H

#include "state.h"

/* Set before loading. */
volatile const u32 namespace_inode = 0; /* of our PID namespace; 0: the first one, whose numbers tasks have themselves */

#define LEVELS 32 /* of PID namespaces within each other: MAX_PID_NS_LEVEL of the kernel */
#define NOWHERE ~0u

u32 namespace_level = NOWHERE; /* how deep our namespace lies; found with the first task that it has */

/* A task's number at a level; 0 when another namespace is there. */
INLINE u32 number_at(struct pid *pid, u32 level) {
  struct upid number = {};
  u32 inode = 0;
  bpf_probe_read_kernel(&number, sizeof(number), (void *)__builtin_preserve_access_index(&pid->numbers) + level * sizeof(number));
  READ(inode, number.ns->ns.inum);
  return inode == namespace_inode ? number.nr : 0;
}

INLINE void find_namespace(struct task_struct *task) {
  if (!namespace_inode || namespace_level != NOWHERE)
    return;
  struct pid *pid = NULL;
  u32 deepest = 0;
  READ(pid, task->thread_pid);
  READ(deepest, pid->level);
  for (u32 level = 0; level <= LEVELS && level <= deepest; level++) {
    if (number_at(pid, level)) {
      namespace_level = level;
      return;
    }
  }
}

/* A task's number in our namespace; 0 when it is outside of it. */
INLINE u32 number_of(struct task_struct *task) {
  if (!namespace_inode)
    return task->pid;
  struct pid *pid = NULL;
  u32 deepest = 0, level = namespace_level;
  READ(pid, task->thread_pid);
  READ(deepest, pid->level);
  return pid && level <= deepest && level <= LEVELS ? number_at(pid, level) : 0;
}

/* Tasks outside of the trace whose names were handed over in the window. */
struct waker {
  u64 start; /* when it was created: a number is used again */
  u64 ts;
};
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 8192);
  __type(key, u32);
  __type(value, struct waker);
} wakers SEC(".maps");

/* The name of who woke a thread, once. */
static __attribute__((noinline)) u32 put_waker(struct task_struct *task, u32 tid, u64 now) {
  if (!tid)
    return 0;
  struct waker now_known = {.start = task->start_time, .ts = now}, *known = bpf_map_lookup_elem(&wakers, &tid);
  if (known && known->start == now_known.start && known->ts >= window.since)
    return 0;
  struct named *r = bpf_ringbuf_reserve(&vital, sizeof(*r), 0);
  if (!r)
    return 0;
  bpf_map_update_elem(&wakers, &tid, &now_known, 0);
  r->head.kind = WAKER;
  r->head.cpu = bpf_get_smp_processor_id();
  r->head.tid = tid;
  r->head.thread = 0;
  r->head.ts = now;
  r->tgid = number_of(task->group_leader);
  r->other_tid = 0;
  r->start_ns = now_known.start;
  bpf_probe_read_kernel(r->comm, sizeof(r->comm), task->comm);
  bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
  return 0;
}

#endif
