/* bare_ring OBJECT -p PID: loads bare_ring.bpf.c for a process and its children, says "begun", and empties the ring 20 times a second, as
 * leadline does, until SIGINT. Then it says how many records there were, and for how many there was no room. */
#include <bpf/libbpf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t over;
static long records;
static void end(int signal) { over = signal; }
static int count(void *nothing, void *record, size_t size) { records++; return 0; }

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  signal(SIGINT, end);
  struct bpf_object *object = bpf_object__open_file(argv[1], NULL);
  struct bpf_map *map, *variables = NULL;
  struct bpf_program *program;
  if (!object) return 1;
  bpf_object__for_each_map(map, object) {
    size_t size;
    if (strstr(bpf_map__name(map), ".rodata"))
      *(unsigned *)bpf_map__initial_value(map, &size) = atoi(argv[3]);
    if (strstr(bpf_map__name(map), ".bss"))
      variables = map;
  }
  if (bpf_object__load(object)) return 1;
  bpf_object__for_each_program(program, object)
    if (!bpf_program__attach(program)) return 1;
  struct ring_buffer *ring = ring_buffer__new(bpf_object__find_map_fd_by_name(object, "ring"), count, NULL, NULL);
  if (!ring) return 1;
  puts("begun");
  fflush(stdout);
  while (!over) {
    usleep(50000);
    ring_buffer__consume(ring);
  }
  unsigned zero = 0;
  unsigned long lost = 0;
  if (variables) bpf_map__lookup_elem(variables, &zero, sizeof zero, &lost, sizeof lost, 0);
  printf("%ld records, %lu lost\n", records, lost);
  return 0;
}
