#include "threads.h"

enum { EACH = 20000, NODES = 64 };

struct node {
    thiscpu_link link;
    int uses;
};

static struct node nodes[THREADS * NODES];
static int used;

// Checks that a node that was taken belongs to one thread only.
static void *take_and_push(void *with) {
    struct node *mine = &nodes[__atomic_fetch_add(&used, NODES, __ATOMIC_SEQ_CST)];
    for (int i = 0; i < NODES; i++) {
        OK(thiscpu_stack_push(with, &mine[i].link));
    }
    for (int i = 0; i < EACH; i++) {
        thiscpu_link *first;
        thiscpu_status status =
            i % 16 == 0 ? thiscpu_stack_take_all(with, &first) : thiscpu_stack_pop(with, &first);
        CHECK(status == THISCPU_STATUS_OK || (status == THISCPU_STATUS_EMPTY && first == NULL));
        while (first != NULL) {
            struct node *node = (struct node *)first;
            first = i % 16 == 0 ? node->link.next : NULL;
            CHECK(__atomic_exchange_n(&node->uses, 1, __ATOMIC_SEQ_CST) == 0);
            __atomic_store_n(&node->uses, 0, __ATOMIC_SEQ_CST);
            OK(thiscpu_stack_push(with, &node->link));
        }
    }
    return NULL;
}

static thiscpu_stack *drained;

static void push_again(thiscpu_link *node, void *context) {
    OK(thiscpu_stack_push(drained, node));
    ++*(int *)context;
}

static void count_once(thiscpu_link *node, void *context) {
    CHECK(((struct node *)node)->uses++ == 0);
    ++*(int *)context;
}

int main(void) {
    thiscpu_stack *stack;
    OK(thiscpu_stack_create(&stack));
    on_threads(take_and_push, stack);
    int count = 0;
    drained = stack;
    OK(thiscpu_stack_drain(stack, push_again, &count));
    CHECK(count == THREADS * NODES);
    count = 0;
    OK(thiscpu_stack_drain(stack, count_once, &count));
    CHECK(count == THREADS * NODES);
    thiscpu_link *misaligned = (thiscpu_link *)(void *)((char *)nodes + 1);
    RETURNS(THISCPU_STATUS_MISALIGNED, thiscpu_stack_push(stack, misaligned));
    thiscpu_link *none = &nodes[0].link;
    RETURNS(THISCPU_STATUS_EMPTY, thiscpu_stack_pop(stack, &none));
    CHECK(none == NULL);
    OK(thiscpu_stack_destroy(stack));
    return 0;
}
