/* wait_changes OBJECT PID:ADDRESS...: watches the word at ADDRESS (hex) of each process by a watchpoint of the CPU, says "begun", and when its
 * input ends, prints a line for each process and value: pid, value, ns, and so many waits of at least 2^n ns for each n. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BUCKETS 40
struct key { unsigned tid, value; };
struct sum { unsigned long ns, bucket[BUCKETS]; };

static int watch(char *what, struct bpf_program *program) {
  char *colon = strchr(what, ':');
  if (!colon) return 0;
  struct perf_event_attr attr = {.type = PERF_TYPE_BREAKPOINT, .size = sizeof attr, .bp_type = HW_BREAKPOINT_W, .bp_len = 4, .sample_period = 1};
  attr.bp_addr = strtoul(colon + 1, NULL, 16);
  attr.exclude_kernel = attr.exclude_hv = 1;
  int event = syscall(SYS_perf_event_open, &attr, atoi(what), -1, -1, 0);
  return event >= 0 && bpf_program__attach_perf_event(program, event);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  struct bpf_object *object = bpf_object__open_file(argv[1], NULL);
  if (!object || bpf_object__load(object)) return 1;
  struct bpf_program *program = bpf_object__find_program_by_name(object, "written");
  for (int i = 2; i < argc; i++)
    if (!watch(argv[i], program)) {
      perror(argv[i]);
      return 1;
    }
  puts("begun");
  fflush(stdout);
  while (getchar() != EOF);
  int sums = bpf_object__find_map_fd_by_name(object, "sums");
  struct key key, *from = NULL;
  struct sum sum;
  for (; !bpf_map_get_next_key(sums, from, &key); from = &key) {
    if (bpf_map_lookup_elem(sums, &key, &sum)) return 1;
    printf("%u %u %lu", key.tid, key.value, sum.ns);
    for (int n = 0; n < BUCKETS; n++) printf(" %lu", sum.bucket[n]);
    puts("");
  }
  struct bpf_map *variables = bpf_object__find_map_by_name(object, ".bss");
  unsigned zero = 0;
  unsigned long lost = 0;
  if (variables && bpf_map__lookup_elem(variables, &zero, sizeof zero, &lost, sizeof lost, 0)) return 1;
  if (lost) fprintf(stderr, "%lu changes were lost\n", lost);
  return lost != 0;
}
