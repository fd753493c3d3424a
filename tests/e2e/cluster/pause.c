// SPDX-License-Identifier: Apache-2.0
//
// The process that holds a pod's namespaces: reaps whatever is handed to it, ends on TERM or INT.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int sig) { _exit(sig == SIGINT ? 130 : 0); }
static void reap(int sig) {
	(void)sig;
	while (waitpid(-1, 0, WNOHANG) > 0) {}
}

int main(void) {
	struct sigaction a = {.sa_handler = end}, c = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
	sigaction(SIGTERM, &a, 0);
	sigaction(SIGINT, &a, 0);
	sigaction(SIGCHLD, &c, 0);
	for (;;) pause();
}
