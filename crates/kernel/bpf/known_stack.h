/* The functions of the kernel in which a thread sleeps. To unwind a stack takes microseconds, and a thread mostly sleeps where it slept
 * before. So the places of the return addresses on its stack are kept, counted from the stack pointer: when all of them are there again, it
 * is the same chain. The last one of a whole chain is not looked for: the kernel begins each system call at a random depth, and it stands before
 * that. */
#ifndef LEADLINE_KNOWN_STACK_H
#define LEADLINE_KNOWN_STACK_H

#include "records.h"
#include "task.h"

/* Set before loading. */
volatile const u64 scheduler_from = 0; /* where the kernel has the functions of its scheduler, and locks */
volatile const u64 scheduler_bytes = 0;

#define STACK_WORDS 160 /* of the stack, from its pointer on: what 12 functions mostly need */
#define STACK_SIZE 16384 /* of a task, on x86-64; also how it is aligned */
#define FEWEST 4 /* a shorter chain is unwound each time: it is quickly done, and little to compare */

struct known_stack {
  u32 frames; /* 0: none can be recognised */
  u32 count; /* of `ips`, also of those that cannot */
  u32 told; /* the reader has them */
  volatile u32 found; /* of them, while their places are looked for: here, as the verifier follows each value of a variable */
  u32 words; /* of the stack, up to the last of the places */
  u32 wait_place;
  u64 wait; /* the function of the scheduler that the innermost one of the others called, a lock or a timeout; 0: not seen */
  u8 places[FRAMES]; /* in words */
  u64 ips[FRAMES];
};
struct stack_words {
  u32 count;
  u64 words[STACK_WORDS];
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, struct stack_words);
} stack_words SEC(".maps");

/* How many of the return addresses are looked for. */
INLINE u32 looked_for(u32 frames) {
  return frames && frames < FRAMES ? frames - 1 : frames;
}

/* Whether the return addresses are where they were. */
INLINE u32 is_as_known(struct known_stack *known, struct stack_words *stack) {
  u32 all = looked_for(known->frames), wait = known->wait_place;
  if (known->wait && (wait >= STACK_WORDS || wait >= stack->count || stack->words[wait] != known->wait))
    return 0;
  for (u32 i = 0; i < FRAMES; i++) {
    if (i >= all)
      return i > 0;
    u32 place = known->places[i];
    if (place >= STACK_WORDS || place >= stack->count || stack->words[place] != known->ips[i])
      return 0;
  }
  return 1;
}

/* Finds the places of the return addresses. Whether all are there. As find_wait it is not static: the verifier looks at it once in a
 * program. */
__attribute__((noinline)) int find_places(struct known_stack *known, u32 frames) {
  u32 all = looked_for(frames), zero = 0;
  struct stack_words *stack = bpf_map_lookup_elem(&stack_words, &zero);
  if (!stack || !known)
    return 0;
  known->found = 0;
  for (u32 place = 0; place < STACK_WORDS; place++) {
    u32 n = known->found;
    if (n >= FRAMES || n >= all || place >= stack->count)
      break;
    if (stack->words[place] == known->ips[n]) {
      known->places[n] = place;
      known->words = place + 1;
      known->found = n + 1;
    }
  }
  return known->found == all;
}

/* The kernel leaves the functions of its scheduler out of a stack, and its locks are among them. Of the addresses within these that stand
 * before the innermost of the other functions, the last one is that which it called. */
__attribute__((noinline)) int find_wait(struct known_stack *known) {
  u32 zero = 0;
  struct stack_words *stack = bpf_map_lookup_elem(&stack_words, &zero);
  if (!stack || !known)
    return 0;
  u64 innermost = known->ips[0], wait = 0;
  u32 at = 0;
  for (u32 place = 0; place < STACK_WORDS && place < stack->count; place++) {
    u64 word = stack->words[place];
    if (word == innermost) {
      known->wait = wait;
      known->wait_place = at;
      return 1;
    }
    if (word - scheduler_from < scheduler_bytes) {
      wait = word;
      at = place;
    }
  }
  return 0;
}

#define WAIT_MARK (1ull << 63) /* an address of the kernel has this bit */

/* Reads so many words of the stack of a task that is off the CPU, up to its end at the most. */
INLINE void read_stack(struct stack_words *stack, struct task_struct *task, u32 words) {
  u64 sp = task->thread.sp, bytes = (sp | (STACK_SIZE - 1)) + 1 - sp;
  if (bytes > words * sizeof(u64))
    bytes = words * sizeof(u64);
  if (bytes > sizeof(stack->words))
    bytes = sizeof(stack->words);
  stack->count = bpf_probe_read_kernel(stack->words, bytes, (void *)sp) ? 0 : bytes / sizeof(u64);
}

/* Sees to it that `known` has the functions of a task that is off the CPU. */
static __attribute__((noinline)) u32 look_at_functions(struct task_struct *task, struct known_stack *known) {
  u32 zero = 0;
  struct stack_words *stack = bpf_map_lookup_elem(&stack_words, &zero);
  if (!stack || !known)
    return 0;
  if (known->frames) {
    read_stack(stack, task, known->words);
    if (is_as_known(known, stack))
      return 0;
  }
  long bytes = bpf_get_task_stack(task, known->ips, sizeof(known->ips), 0);
  u32 frames = bytes > 0 ? bytes / sizeof(u64) : 0;
  known->count = frames;
  known->frames = known->told = 0;
  known->wait = 0;
  if (frames) {
    read_stack(stack, task, STACK_WORDS);
    find_wait(known);
  }
  if (frames >= FEWEST && find_places(known, frames))
    known->frames = frames;
  return 0;
}

/* Fills `ips` with them, innermost first, and says how many they are. What the task called of the scheduler stands first, without the
 * highest bit. */
INLINE u32 put_functions(struct known_stack *known, u64 *ips) {
  u32 frames = known->count;
  if (known->wait) {
    ips[0] = known->wait & ~WAIT_MARK;
    for (u32 i = 1; i < FRAMES; i++)
      ips[i] = known->ips[i - 1];
    return frames < FRAMES ? frames + 1 : FRAMES;
  }
  for (u32 i = 0; i < FRAMES; i++)
    ips[i] = known->ips[i];
  return frames;
}

#endif
