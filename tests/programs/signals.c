/* Says what it finds ignored and blocked as it starts, then each of the signals NUMBER that arrives.
 *
 *   signals NUMBER...
 *
 * Prints the lines SigBlk and SigIgn of /proc/self/status and "ready"; then "NUMBER" for each signal, "NUMBER
 * VALUE" for one that was queued. Of a byte "g" of its standard input it sends the first of the signals to its process group, and of a "c" a child does,
 * which ignores it itself. Ends at the end of its standard input. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void got(int number, siginfo_t *info, void *context)
{
	char text[64];
	int len;

	(void)context;
	if (info->si_code == SI_QUEUE)
		len = snprintf(text, sizeof text, "%d %d\n", number, info->si_value.sival_int);
	else
		len = snprintf(text, sizeof text, "%d\n", number);
	if (write(1, text, len) != len)
		_exit(1);
}

static void say_masks(void)
{
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");

	while (status && fgets(line, sizeof line, status))
		if (!strncmp(line, "SigBlk", 6) || !strncmp(line, "SigIgn", 6))
			fputs(line, stdout);
	if (status)
		fclose(status);
}

static void tell_group(int number, char by)
{
	/* Nobody waits for it: who looks for the sender finds it. */
	pid_t child = by == 'c' ? fork() : 0;

	if (child)
		return;
	if (by == 'c')
		signal(number, SIG_IGN);
	if (kill(0, number) || by == 'c')
		_exit(2);
}

int main(int count, char **words)
{
	struct sigaction action = {.sa_sigaction = got, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct pollfd input = {.fd = 0, .events = POLLIN};
	sigset_t none;
	char byte = 0;
	int i;

	say_masks();
	for (i = 1; i < count; i++)
		if (sigaction(atoi(words[i]), &action, NULL))
			return 2;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	puts("ready");
	fflush(stdout);
	while (poll(&input, 1, -1) <= 0 || read(0, &byte, 1) > 0)
		if (byte == 'g' || byte == 'c') {
			char by = byte;

			byte = 0;
			tell_group(atoi(words[1]), by);
		}
	return 0;
}
