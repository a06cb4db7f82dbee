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
        OK(thiscpu_list_push(with, &mine[i].link));
    }
    for (int i = 0; i < EACH; i++) {
        thiscpu_link *first;
        thiscpu_status status =
            i % 16 == 0 ? thiscpu_list_take_all(with, &first) : thiscpu_list_pop(with, &first);
        CHECK(status == THISCPU_STATUS_OK || (status == THISCPU_STATUS_EMPTY && first == NULL));
        while (first != NULL) {
            struct node *node = (struct node *)first;
            first = i % 16 == 0 ? node->link.next : NULL;
            CHECK(__atomic_exchange_n(&node->uses, 1, __ATOMIC_SEQ_CST) == 0);
            __atomic_store_n(&node->uses, 0, __ATOMIC_SEQ_CST);
            OK(thiscpu_list_push(with, &node->link));
        }
    }
    return NULL;
}

static thiscpu_list *again;

static void push_again(thiscpu_link *node, void *context) {
    OK(thiscpu_list_push(again, node));
    ++*(int *)context;
}

static void see(thiscpu_link *node, void *context) {
    CHECK(((struct node *)node)->uses++ == 0);
    ++*(int *)context;
}

int main(void) {
    thiscpu_list *list;
    OK(thiscpu_list_create(&list));
    on_threads(take_and_put, list);
    int seen = 0;
    again = list;
    OK(thiscpu_list_drain(list, push_again, &seen));
    CHECK(seen == THREADS * NODES);
    seen = 0;
    OK(thiscpu_list_drain(list, see, &seen));
    CHECK(seen == THREADS * NODES);
    SAYS(THISCPU_STATUS_MISALIGNED, thiscpu_list_push(list, (thiscpu_link *)(void *)((char *)nodes + 1)));
    thiscpu_link *none = &nodes[0].link;
    SAYS(THISCPU_STATUS_EMPTY, thiscpu_list_pop(list, &none));
    CHECK(none == NULL);
    OK(thiscpu_list_destroy(list));
    return 0;
}
