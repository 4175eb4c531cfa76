/* What net_floor.py and wire_loss.py compare with: the least that a program can do on sockets of this host.
 *
 *   pingpong serve SIZE             sends each SIZE bytes back; prints its port
 *   pingpong ping PORT SIZE SECONDS prints the median and the 99th percentile of the round trips in ns, and how many there were
 *   pingpong relay PORT             passes on to PORT, 256 kB at a time, one connection; prints its port
 *   pingpong sink                   reads one connection to its end; prints its port, then bytes a second
 *   pingpong source PORT BYTES      sends so many
 *   pingpong drip PORT RATE SECONDS sends one byte RATE times a second, each in a segment of its own; prints how many it sent, and the
 *                                   segments that its TCP says it sent and received
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char buffer[1 << 18];

static long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static int prepared(int fd) {
  int one = 1;
  if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) fail("socket");
  return fd;
}

static int listening(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(fd, (void *)&a, n) || listen(fd, 8) || getsockname(fd, (void *)&a, &n)) fail("listen");
  printf("%d\n", ntohs(a.sin_port));
  fflush(stdout);
  return fd;
}

static int connected(const char *port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(atoi(port))};
  int fd = prepared(socket(AF_INET, SOCK_STREAM, 0));
  if (connect(fd, (void *)&a, sizeof a)) fail("connect");
  return fd;
}

static int whole(int fd, long size) { /* reads so many bytes; 0 at the end of the stream */
  for (long got = 0; got < size;) {
    ssize_t n = read(fd, buffer + got, size - got);
    if (n <= 0) return 0;
    got += n;
  }
  return 1;
}

static int sent(int fd, const char *from, long size) {
  for (long done = 0; done < size;) {
    ssize_t n = send(fd, from + done, size - done, MSG_NOSIGNAL);
    if (n <= 0) return 0;
    done += n;
  }
  return 1;
}

static int by_value(const void *a, const void *b) { return (*(long *)a > *(long *)b) - (*(long *)a < *(long *)b); }

static void ping(const char *port, long size, double seconds) {
  int fd = connected(port);
  long most = 20000000, n = 0, *times = malloc(most * sizeof *times), end = 0;
  for (long i = 0; i < 1000; i++) /* what is not there yet is not measured */
    if (!sent(fd, buffer, size) || !whole(fd, size)) fail("ping");
  end = now() + (long)(seconds * 1e9);
  while (n < most) {
    long from = now();
    if (!sent(fd, buffer, size) || !whole(fd, size)) fail("ping");
    long to = now();
    times[n++] = to - from;
    if (to >= end) break;
  }
  qsort(times, n, sizeof *times, by_value);
  printf("%ld %ld %ld\n", times[n / 2], times[n * 99 / 100], n);
}

static void relay(const char *port) {
  int fds[2] = {prepared(accept(listening(), 0, 0)), connected(port)};
  struct pollfd polls[2] = {{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};
  for (int open = 2; open;) {
    if (poll(polls, 2, -1) < 0) fail("poll");
    for (int i = 0; i < 2; i++) {
      if (!polls[i].revents) continue;
      ssize_t n = read(fds[i], buffer, sizeof buffer);
      if (n > 0 && sent(fds[1 - i], buffer, n)) continue;
      shutdown(fds[1 - i], SHUT_WR);
      polls[i].fd = -1;
      open--;
    }
  }
}

static void sink(void) {
  int fd = accept(listening(), 0, 0);
  long total = 0, from = now();
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) total += n;
  printf("%.0f\n", total / ((now() - from) / 1e9));
}

static void drip(const char *port, double rate, double seconds) {
  int fd = connected(port);
  struct tcp_info info;
  socklen_t n = sizeof info;
  long begin = now(), count = (long)(rate * seconds);
  for (long i = 0; i < count; i++) {
    while (now() < begin + (long)(i / rate * 1e9)) {
    }
    if (!sent(fd, buffer, 1)) fail("send");
  }
  shutdown(fd, SHUT_WR);
  while (read(fd, buffer, sizeof buffer) > 0) {
  }
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n)) fail("TCP_INFO");
  printf("%ld %.6f %u %u\n", count, (now() - begin) / 1e9, info.tcpi_segs_out, info.tcpi_segs_in);
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  if (!strcmp(mode, "serve") && argc == 3) {
    int listener = listening();
    for (;;) {
      int fd = prepared(accept(listener, 0, 0));
      while (whole(fd, atol(argv[2])) && sent(fd, buffer, atol(argv[2]))) {
      }
      close(fd);
    }
  } else if (!strcmp(mode, "ping") && argc == 5) {
    ping(argv[2], atol(argv[3]), atof(argv[4]));
  } else if (!strcmp(mode, "relay") && argc == 3) {
    relay(argv[2]);
  } else if (!strcmp(mode, "sink")) {
    sink();
  } else if (!strcmp(mode, "source") && argc == 4) {
    int fd = connected(argv[2]);
    for (long left = atol(argv[3]); left > 0; left -= sizeof buffer)
      if (!sent(fd, buffer, left < (long)sizeof buffer ? left : (long)sizeof buffer)) fail("source");
  } else if (!strcmp(mode, "drip") && argc == 5) {
    drip(argv[2], atof(argv[3]), atof(argv[4]));
  } else {
    fprintf(stderr, "usage: see the head of pingpong.c\n");
    return 2;
  }
  return 0;
}
