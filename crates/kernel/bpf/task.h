/* What is read of a task: of the kernel's structures only the fields that are used. Where they lie is found when the programs are loaded. */
#ifndef LEADLINE_TASK_H
#define LEADLINE_TASK_H

#include "helpers.h"

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
#pragma clang attribute pop

#endif
