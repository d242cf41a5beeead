# frozen_string_literal: true

require 'json'
require 'puppet'
require File.expand_path('../../puppet_x/muster/plain_data', File.dirname(__FILE__))
require File.expand_path('../../puppet_x/muster/run_file', File.dirname(__FILE__))

Puppet::Reports.register_report(:muster) do
  desc 'Writes the report as JSON to the file in MUSTER_REPORT_FILE, in one step, for muster-agent to read.'

  def process
    report = to_data_hash
    # Puppet 8 omits unchanged resources, and then the counts would be wrong.
    report['resource_statuses'] = resource_statuses.compact.transform_values(&:to_data_hash)
    resource_statuses.each do |name, status|
      data = report['resource_statuses'][name]
      complete(data, status) if data && status
    end
    report = PuppetX::Muster::PlainData.from(report)
    PuppetX::Muster::RunFile.replace('MUSTER_REPORT_FILE', JSON.generate(report))
  end

  # Adds data of a resource that Puppet omits from its report, or writes in an unreadable form.
  def complete(data, status)
    # The failed dependencies of a skipped resource, also indirect ones.
    failed = Array(status.failed_dependencies).map(&:ref)
    data['failed_dependencies'] = failed unless failed.empty?
    # The checksum of a file is text without an encoding, which a report would contain as Base64.
    data['events'].zip(status.events) do |event, raw|
      event['desired_value'] = raw.desired_value if raw && raw.desired_value.is_a?(String)
    end
  end
end
