#include "threads.h"

enum { EACH = 20000, NODES = 64 };

struct node {
    thiscpu_link link;
    int uses;
};

static struct node nodes[THREADS * NODES];
static int used;

// A node that was taken is nobody else's.
static void *take_and_put(void *with) {
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

static thiscpu_stack *again;

static void push_again(thiscpu_link *node, void *context) {
    OK(thiscpu_stack_push(again, node));
    ++*(int *)context;
}

static void see(thiscpu_link *node, void *context) {
    CHECK(((struct node *)node)->uses++ == 0);
    ++*(int *)context;
}

int main(void) {
    thiscpu_stack *stack;
    OK(thiscpu_stack_create(&stack));
    on_threads(take_and_put, stack);
    int seen = 0;
    again = stack;
    OK(thiscpu_stack_drain(stack, push_again, &seen));
    CHECK(seen == THREADS * NODES);
    seen = 0;
    OK(thiscpu_stack_drain(stack, see, &seen));
    CHECK(seen == THREADS * NODES);
    SAYS(THISCPU_STATUS_MISALIGNED, thiscpu_stack_push(stack, (thiscpu_link *)(void *)((char *)nodes + 1)));
    thiscpu_link *none = &nodes[0].link;
    SAYS(THISCPU_STATUS_EMPTY, thiscpu_stack_pop(stack, &none));
    CHECK(none == NULL);
    OK(thiscpu_stack_destroy(stack));
    return 0;
}
