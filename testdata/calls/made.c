#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) int leaf(int n) { return n * 2; }
__attribute__((noinline)) int middle(int n) { int s = 0; for (int i = 0; i < 3; i++) s += leaf(n + i); return s; }
int main(void) {
    int v[4] = {4, 3, 2, 1}, s = 0;
    for (int i = 0; i < 5; i++) s += middle(i);
    qsort(v, 4, sizeof *v, compare);
    write(1, "x\n", 2);
    return s == v[0];
}
