// DPDK's environment: started once, with its log going into ours.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_version.h>

#include "shim.h"

static qd_log_fn log_to;

static ssize_t log_write(void *cookie, const char *text, size_t len)
{
	(void)cookie;
	int level = rte_log_cur_msg_loglevel();
	log_to(level < 0 ? (int)RTE_LOG_INFO : level, text, len);
	return (ssize_t)len;
}

// 0, or a negative error number.
int qd_init(int argc, char **argv, qd_log_fn log)
{
	cookie_io_functions_t functions = {.write = log_write};
	FILE *stream;
	cpu_set_t before;
	char folder[256];
	int pinned, result;

	log_to = log;
	stream = fopencookie(NULL, "w", functions);
	if (stream == NULL)
		return -errno;
	setvbuf(stream, NULL, _IOLBF, 4096);
	rte_openlog_stream(stream);
	// The thread that starts the environment is pinned by it; where our threads run is not its affair.
	pinned = sched_getaffinity(0, sizeof(before), &before);
	result = rte_eal_init(argc, argv);
	if (pinned == 0)
		sched_setaffinity(0, sizeof(before), &before);
	if (result < 0)
		return rte_errno ? -rte_errno : -EIO;
	// Nothing is shared with other processes, so the folder made for that stays empty.
	snprintf(folder, sizeof(folder), "%s", rte_eal_get_runtime_dir());
	if (folder[0] != '\0')
		rmdir(folder);
	return 0;
}

const char *qd_version(void)
{
	return rte_version();
}

int qd_thread_register(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	return rte_thread_register() == 0 ? 1 : -rte_errno;
}

void qd_thread_unregister(void)
{
	rte_thread_unregister();
}

int qd_attach(const char *devargs)
{
	return rte_dev_probe(devargs);
}
