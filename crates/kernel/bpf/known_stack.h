/* The functions of the kernel in which a thread sleeps. To unwind a stack takes microseconds, and a thread mostly sleeps where it slept
 * before. So the places of the return addresses on its stack are kept, counted from the stack pointer: when all of them are there again, it
 * is the same chain. The last one of a whole chain is not looked for: the kernel begins each system call at a random depth, and it stands before
 * that. */
#ifndef LEADLINE_KNOWN_STACK_H
#define LEADLINE_KNOWN_STACK_H

#define STACK_WORDS 160 /* of the stack, from its pointer on: what 12 functions mostly need */
#define STACK_SIZE 16384 /* of a task, on x86-64; also how it is aligned */
#define FEWEST 4 /* a shorter chain is unwound each time: it is quickly done, and little to compare */

struct known_stack {
  u32 frames; /* 0: none is known */
  volatile u32 found; /* of them, while their places are looked for: here, as the verifier follows each value of a variable */
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
  u32 all = looked_for(known->frames);
  for (u32 i = 0; i < FRAMES; i++) {
    if (i >= all)
      return i > 0;
    u32 place = known->places[i];
    if (place >= STACK_WORDS || place >= stack->count || stack->words[place] != known->ips[i])
      return 0;
  }
  return 1;
}

/* Finds the places of the return addresses. Whether all are there. */
INLINE u32 find_places(struct known_stack *known, struct stack_words *stack, u32 frames) {
  u32 all = looked_for(frames);
  known->found = 0;
  for (u32 place = 0; place < STACK_WORDS; place++) {
    u32 n = known->found;
    if (n >= FRAMES || n >= all || place >= stack->count)
      break;
    if (stack->words[place] == known->ips[n]) {
      known->places[n] = place;
      known->found = n + 1;
    }
  }
  return known->found == all;
}

/* Reads the stack of a task that is off the CPU, up to its end at the most. */
INLINE void read_stack(struct stack_words *stack, struct task_struct *task) {
  u64 sp = task->thread.sp, bytes = (sp | (STACK_SIZE - 1)) + 1 - sp;
  if (bytes > sizeof(stack->words))
    bytes = sizeof(stack->words);
  stack->count = bpf_probe_read_kernel(stack->words, bytes, (void *)sp) ? 0 : bytes / sizeof(u64);
}

/* Fills `ips`, innermost first, and says how many they are. The task is off the CPU. */
static __attribute__((noinline)) u32 functions_of(struct task_struct *task, struct known_stack *known, u64 *ips) {
  u32 zero = 0;
  struct stack_words *stack = bpf_map_lookup_elem(&stack_words, &zero);
  if (!stack || !known || !ips)
    return 0;
  read_stack(stack, task);
  u32 frames = known->frames;
  if (!is_as_known(known, stack)) {
    long bytes = bpf_get_task_stack(task, known->ips, sizeof(known->ips), 0);
    frames = bytes > 0 ? bytes / sizeof(u64) : 0;
    known->frames = frames >= FEWEST && find_places(known, stack, frames) ? frames : 0;
  }
  for (u32 i = 0; i < FRAMES; i++)
    ips[i] = known->ips[i];
  return frames;
}

#endif
