-- NNI 3.0 can view this folder, and writes its events into these views when it resumes one. The sentence becomes the
-- error that its status shows.
CREATE TRIGGER nni_resumes INSTEAD OF INSERT ON TrialJobEvent BEGIN
    SELECT RAISE(ABORT, 'NNI cannot resume an experiment of nni-manager, only view it: nnictl resume of nni-manager continues it');
END;
CREATE TRIGGER nni_reports INSTEAD OF INSERT ON MetricData BEGIN
    SELECT RAISE(ABORT, 'NNI cannot resume an experiment of nni-manager, only view it: nnictl resume of nni-manager continues it');
END;
