// Files that several processes have: inherited, executed with, sent.
#define _GNU_SOURCE
#include "files.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void forks(void) {
	char *at;
	int fd = filled(&at);
	pid_t pid = fork();
	if (pid == 0) {
		size_t wrong = wrong_in(at, 1);
		fill(at, 2);
		char *other = view(fd);
		wrong += wrong_in(other, 2);
		fill(other, 3);
		_exit(wrong != 0);
	}
	wait_for(pid);
	say("mapping", wrong_in(at, 3));
	pid = fork();
	if (pid == 0)
		_exit(wrong_by_reading(fd, 3) != 0);
	wait_for(pid);
	say("after a read", wrong_in(at, 3));
	fill(at, 4);
	pid = fork();
	if (pid == 0)
		_exit(wrong_in(at, 4) != 0);
	wait_for(pid);
}

// Only a child has it mapped, and its parent reads it when that is gone.
static void outlives(void) {
	int fd = make(MFD_CLOEXEC);
	pid_t pid = fork();
	if (pid == 0) {
		fill(view(fd), 1);
		_exit(0);
	}
	wait_for(pid);
	usleep(300000);
	say("mapped", wrong_in(view(fd), 1));
	say("read", wrong_by_reading(fd, 1));
}

static void executes(void) {
	char number[16], size[16], *at;
	int fd = make(0);
	at = view(fd);
	fill(at, 1);
	snprintf(number, sizeof number, "%d", fd);
	snprintf(size, sizeof size, "%zu", bytes >> 20);
	for (int how = 0; how < 2; how++) {
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			execl(own_path, own_path, size, how ? "inherit-read" : "inherit-map", number, NULL);
			_exit(1);
		}
		wait_for(pid);
	}
	say("changed", wrong_in(at, 7));
}

static void send_file(int socket, int fd) {
	char byte = 0, room[CMSG_SPACE(sizeof fd)] = { 0 };
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	*head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(head), &fd, sizeof fd);
	must(sendmsg(socket, &message, 0) == 1, "sendmsg");
}

static int take_file(int socket) {
	char byte, room[CMSG_SPACE(sizeof(int))];
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	int fd = -1;
	if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

// Given to a process that was there before, mapped before or after.
static void sent(int late) {
	int ends[2];
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
	pid_t pid = fork();
	if (pid == 0) {
		int fd = take_file(ends[1]);
		if (fd < 0)
			_exit(2);
		char *at = view(fd);
		char byte;
		if (read(ends[1], &byte, 1) != 1)
			_exit(3);
		size_t wrong = wrong_in(at, 1);
		fill(at, 2);
		_exit(wrong != 0);
	}
	int fd = make(MFD_CLOEXEC);
	if (late)
		send_file(ends[0], fd);
	char *at = view(fd);
	fill(at, 1);
	if (!late)
		send_file(ends[0], fd);
	must(write(ends[0], "", 1) == 1, "write");
	wait_for(pid);
	say("sent", wrong_in(at, 2));
}

static void sends(void) { sent(0); }
static void sends_first(void) { sent(1); }

// Moved, mapped and inherited by several while one of them reads it by its descriptor.
static void storm(void) {
	for (unsigned round = 1; round < 6; round++) {
		int fd = make(MFD_CLOEXEC);
		char *at = view(fd);
		fill(at, round);
		for (int child = 0; child < 4; child++) {
			if (fork() != 0)
				continue;
			size_t wrong = 0;
			for (int step = 0; step < 6; step++) {
				char *other = view(fd);
				char *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
				other = mremap(other, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, room);
				must(other != MAP_FAILED, "mremap");
				wrong += *(uint64_t *)(other + PAGE * step) != word(PAGE * step, round);
				if (child == 1 && step == 3)
					wrong += wrong_by_reading(fd, round);
				munmap(other, bytes);
			}
			_exit(wrong != 0);
		}
		int status;
		while (wait(&status) > 0)
			if (status != 0)
				printf("a child ended with %d\n", status);
		say("round", wrong_in(at, round));
		munmap(at, bytes);
		close(fd);
	}
}

const struct file_case PROCESSES[] = {
	{ "fork", forks },
	{ "outlive", outlives },
	{ "exec", executes },
	{ "send", sends },
	{ "sendfirst", sends_first },
	{ "storm", storm },
	{ NULL, NULL },
};
