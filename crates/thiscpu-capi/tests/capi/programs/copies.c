// Linked with two shared objects of copy.c.
void one_adds(void);
void two_adds(void);

int main(void) {
    for (int i = 0; i < 3; i++) {
        one_adds();
        two_adds();
    }
    return 0;
}
