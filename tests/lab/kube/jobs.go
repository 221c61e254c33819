package kube

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runJobs starts the pod of each job that is not done, and ends it: what runs in it takes no time.
func (c *Cluster) runJobs(all map[string]*corev1.Node) {
	for _, obj := range c.listLocked(jobs, "") {
		job := obj.(*batchv1.Job)
		if job.Status.CompletionTime != nil {
			continue
		}

		if len(c.owned(job)) == 0 {
			c.startJob(job, all)
		}

		for _, p := range c.owned(job) {
			c.finishJob(job, p)
		}
	}

	c.collectOwned("Job", jobs)
}

func (c *Cluster) startJob(job *batchv1.Job, all map[string]*corev1.Node) {
	spec := &job.Spec.Template.Spec

	// without its service account, a pod cannot be made at all
	if c.objects[serviceAccounts][key(job.Namespace, accountOf(spec))] == nil && accountOf(spec) != defaultAccount {
		return
	}

	for _, name := range sortedNames(all) {
		if n := all[name]; !n.Spec.Unschedulable && nodeCondition(n) != corev1.ConditionUnknown && mayRun(spec, n) {
			now := metav1.Now()
			job.Status.StartTime, job.Status.Active = &now, 1
			c.startPod(job, "batch/Job", &job.Spec.Template, n)
			c.replace(jobs, job)

			return
		}
	}
}

const defaultAccount = "default"

func accountOf(spec *corev1.PodSpec) string {
	if spec.ServiceAccountName == "" {
		return defaultAccount
	}

	return spec.ServiceAccountName
}

// finishJob lets a running pod do its work.
func (c *Cluster) finishJob(job *batchv1.Job, p *corev1.Pod) {
	if p.Status.Phase != corev1.PodRunning || !podReady(p) {
		return
	}

	if ctr, problem := (programs{helm: lightHelm{c, p}, ignore: c.ignore}).run(p); problem != "" {
		waiting(p, ctr, "CrashLoopBackOff", problem)
		c.replace(pods, p)

		return
	}

	now := metav1.Now()
	succeed(p)
	c.replace(pods, p)

	job.Status.Active, job.Status.Succeeded, job.Status.CompletionTime = 0, 1, &now
	job.Status.Conditions = []batchv1.JobCondition{
		{
			Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonCompletionsReached,
			LastTransitionTime: now,
		},
		{
			Type: batchv1.JobComplete, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonCompletionsReached,
			LastTransitionTime: now,
		},
	}
	c.replace(jobs, job)
}

// succeed ends a pod whose containers have done their work.
func succeed(p *corev1.Pod) {
	now := metav1.Now()
	p.Status.Phase = corev1.PodSucceeded

	for i := range p.Status.Conditions {
		if cond := &p.Status.Conditions[i]; cond.Type == corev1.PodReady || cond.Type == corev1.ContainersReady {
			cond.Status, cond.Reason = corev1.ConditionFalse, "PodCompleted"
		}
	}

	for i := range p.Status.ContainerStatuses {
		cs := &p.Status.ContainerStatuses[i]
		cs.Ready, cs.Started = false, new(bool)
		cs.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: now}}
	}
}

// waiting shows why a container does not run.
func waiting(p *corev1.Pod, name, reason, message string) {
	for i := range p.Status.ContainerStatuses {
		if cs := &p.Status.ContainerStatuses[i]; cs.Name == name {
			cs.Ready, cs.Started = false, new(bool)
			cs.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
		}
	}

	for i := range p.Status.Conditions {
		if cond := &p.Status.Conditions[i]; cond.Type == corev1.PodReady || cond.Type == corev1.ContainersReady {
			cond.Status = corev1.ConditionFalse
		}
	}
}

// completed tells whether a pod has come to its end.
func completed(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
